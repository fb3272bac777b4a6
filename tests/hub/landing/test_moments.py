"""Moments between two steps of landings and of merges of children, in the parts of a hub."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bullpen import proc
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.landing import steps
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.landing.children import ChildCleanUp, ChildMerger
from bullpen.hub.landing.queue import Landings
from bullpen.hub.landing.round import SendElsewhere
from bullpen.hub.landing.rows import LandingRows
from bullpen.hub.landing.steps import Chain, Verifier
from bullpen.model.agent import WorktreeRef
from bullpen.model.event import Event
from bullpen.model.landing import Building, CameBack, Landed, Landing
from bullpen.model.message import Message
from bullpen.model.state import HolderGone, Working
from bullpen.worktrees.landing.scratch import Verified
from tests.hub.parts import ENDED, Parts, in_parts, tasks, until
from tests.worktrees.repos import commit, git, make_repo


class Desk:
    """The landings of one hub."""

    def __init__(self, parts: Parts, send_elsewhere: SendElsewhere | None = None) -> None:
        hub = parts.hub
        self.parts, self.rows = parts, LandingRows(parts.store)
        self.book = LandingBook(hub.context, self.rows)
        self.landings = Landings(
            hub.context,
            self.book,
            hub.registry,
            hub.private_gits,
            hub.delivery,
            send_elsewhere or hub.fleet.mail.send,
            hub.child_rows.find_named,
            hub.background,
        )
        self.merger = ChildMerger(
            hub.context,
            hub.registry,
            hub.children,
            hub.private_gits,
            self.landings,
            self.book,
            hub.child_rows.find_named,
            hub.asked_children.fetch_late,
        )
        self.clean_up = ChildCleanUp(
            self.book, hub.registry, hub.remover, hub.background, hub.asked_children
        )

    async def serve(self) -> None:
        await self.landings.load()
        self.parts.hub.background.begin(self.landings.run(), "landings")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Whose branch kid is two commits ahead of main."""
    made = make_repo(tmp_path / "repo")
    for key, value in (("name", "Pat"), ("email", "pat@example.com")):  # who lands
        git(made, "config", f"user.{key}", value)
    git(made, "checkout", "-qb", "kid")
    commit(made, "a.txt")
    commit(made, "b.txt")
    git(made, "checkout", "-q", "main")
    return made


def entry(repo: Path, tip: str, id: str = "l-1", **fields: Any) -> Landing:
    """The work of kid, which is lea's child."""
    given = {"id": id, "name": "kid", "branch": "kid", "target": "main", "strategy": "merge"}
    given |= {"repo": str(repo / ".git"), "base_dir": str(repo.parent / "trees"), "by": "lea"}
    given |= {"has_worktree": False}
    return Landing(
        **{**given, "tip": git(repo, "rev-parse", tip), "created": time.time(), **fields}
    )


def landed(repo: Path) -> Landing:
    """The child is to be removed."""
    status = Landed(commit=git(repo, "rev-parse", "kid"), base="b", at=1.0)
    return entry(repo, "kid", status=status, cleans_up=True)


def test_n5_what_is_asked_while_a_hub_takes_up_earlier_entries_is_still_one_entry(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed hub was at it, and now its author has a newer commit."""
    recover, is_there, go_on = steps.recover_queue, threading.Event(), threading.Event()

    def held(*words: Any) -> set[str]:
        is_there.set()
        assert go_on.wait(60)
        return recover(*words)

    monkeypatch.setattr(steps, "recover_queue", held)

    async def story(parts: Parts) -> None:
        desk = Desk(parts)
        await desk.rows.put(entry(repo, "kid~1", status=Building()))
        await desk.serve()
        await asyncio.to_thread(is_there.wait, 60)
        asking = asyncio.create_task(desk.landings.put_in([entry(repo, "kid", "l-2")]))
        await parts.change("SELECT 1")  # after what it has written, if it has not waited
        go_on.set()
        (asked,) = await asking
        assert (asked.id, asked.tip) == ("l-1", git(repo, "rev-parse", "kid"))
        assert (await desk.landings.wait_resting("l-1")).status.state == "landed"
        assert [each.id for each in await desk.book.last()] == ["l-1"]

    in_parts(story)
    assert git(repo, "rev-list", "--count", "--merges", "main") == "1"


def test_n4_who_asks_again_does_not_take_back_what_becomes_of_the_entry_just_then(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it came back is on its way to the disk, and not known yet."""
    clash = Chain("b", back={"l-1": ("a.txt",)})
    monkeypatch.setattr(steps, "build_chain", lambda *words: clash)

    async def story(parts: Parts) -> None:
        desk, put, again = Desk(parts), LandingRows.put, list[asyncio.Task[list[Landing]]]()

        async def ask_meanwhile(self: LandingRows, *landings: Landing) -> None:
            writing = asyncio.create_task(put(self, *landings))
            await asyncio.sleep(0)
            if isinstance(landings[0].status, CameBack) and not again:
                again.append(asyncio.create_task(desk.landings.put_in([entry(repo, "kid", "l-2")])))
                await asyncio.sleep(0)
            await writing

        monkeypatch.setattr(LandingRows, "put", ask_meanwhile)
        await desk.serve()
        await desk.landings.put_in([entry(repo, "kid")])
        assert (await desk.landings.wait_resting("l-1")).status.state == "came_back"
        assert [each.id for each in await again[0]] == ["l-1"]
        assert [each.status.state for each in await desk.book.last()] == ["came_back"]

    in_parts(story)


def test_n5_a_hub_that_stops_while_verify_runs_leaves_the_entry_to_the_next_one(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = threading.Event()

    def verify(*_words: Any) -> Verified:
        is_there.set()
        proc.run(["sleep", "1000"], timeout=1000)
        raise AssertionError("nothing ends it but the hub")

    monkeypatch.setattr(Verifier, "run", verify)

    async def story(parts: Parts) -> None:
        desk = Desk(parts)
        await desk.serve()
        await desk.landings.put_in([entry(repo, "kid", verify="sleep 1000")])
        await asyncio.to_thread(is_there.wait, 60)
        (working,) = tasks("landing in main")
        desk.landings.leave()
        parts.hub.context.trees.leave()
        await asyncio.wait({working})
        assert [each.status.state for each in await desk.rows.open()] == ["verifying"]

    in_parts(story)


@pytest.mark.slow
def test_l4_an_author_on_another_machine_who_cannot_be_told_holds_up_no_other_work(
    repo: Path,
) -> None:
    async def refuse(message: Message, by: str) -> Message:
        raise BullpenError(f"too many messages of {by} wait for {message.to}")

    async def story(parts: Parts) -> None:
        desk = Desk(parts, refuse)
        back = CameBack(why="conflict", base="b", files=("a.txt",), at=1.0)
        await desk.rows.put(entry(repo, "kid~1", name="h2/kid", branch="elsewhere", status=back))
        await desk.rows.put(entry(repo, "kid~1", "l-2", status=back))  # kid has a newer commit
        await desk.serve()
        await until(lambda: git(repo, "rev-list", "--count", "--merges", "main") == "1")

    in_parts(story)


def test_n6_a_child_that_ends_while_its_removal_is_noted_is_cleaned_up_once(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(parts: Parts) -> None:
        desk = Desk(parts)
        await desk.book.keep(landed(repo))
        put, stopped = LandingRows.put, Event(1, 1.0, "agent.stopped", "kid", {})
        notes: list[Landing] = []

        async def noted(self: LandingRows, *landings: Landing) -> None:
            notes.extend(landings)
            if len(notes) < 3:
                desk.clean_up.notice([stopped])
            await put(self, *landings)

        monkeypatch.setattr(LandingRows, "put", noted)
        desk.clean_up.notice([stopped])
        while cleaning := tasks("clean-up of kid"):
            await asyncio.wait(cleaning)
        assert [each.is_cleaned for each in notes] == [True]
        assert desk.book.open == {}

    in_parts(story)


def test_m6_who_merges_again_while_the_child_is_removed_hears_that_it_has_landed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is there when it is looked for, and gone when its landings are read."""

    async def story(parts: Parts) -> None:
        desk, find = Desk(parts), Landings.find
        parts.put("lea", Working())
        parts.agent("kid", ENDED, parent="lea")
        gone = landed(repo)
        await desk.book.keep(gone)

        async def removed(self: Landings, **fields: Any) -> Sequence[Landing]:
            parts.registry.drop("kid")
            await desk.book.keep(gone.model_copy(update={"is_cleaned": True}))
            return await find(self, **fields)

        monkeypatch.setattr(Landings, "find", removed)
        assert (await desk.merger.merge_child("lea", "kid")).status == gone.status

    in_parts(story)


def test_m6_who_merges_again_while_an_earlier_entry_lands_hears_that_it_has_landed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has not landed when that is looked for, and is being removed when it is planned."""

    async def story(parts: Parts) -> None:
        desk, hub = Desk(parts), parts.hub
        tree = WorktreeRef(name="lea", repo=str(repo / ".git"), path=str(repo))
        parts.put("lea", Working(), worktree=tree, birth_branch="main")
        gone = tree.model_copy(update={"name": "kid", "path": str(repo.parent / "gone")})
        parts.agent("kid", ENDED, parent="lea", worktree=gone)
        earlier = landed(repo)

        async def land_meanwhile(_live: LiveAgent) -> None:
            await desk.book.keep(earlier)

        monkeypatch.setattr(hub.private_gits, "bring_over", land_meanwhile)
        assert (await desk.merger.merge_child("lea", "kid")).id == earlier.id

    in_parts(story)


def test_m6_a_child_that_is_started_again_while_its_turn_is_waited_for_is_not_finished() -> None:
    async def story(parts: Parts) -> None:
        desk, hub = Desk(parts), parts.hub
        await hub.children.load()
        tree = WorktreeRef(name="lea", repo="/r", path="/t")
        parts.put("lea", Working(), worktree=tree, birth_branch="lea")
        kid = parts.put("kid", Working(), parent="lea")
        await hub.children.report(kid, "success", "done", "r1")
        merging = asyncio.create_task(desk.merger.merge_child("lea", "kid"))
        await asyncio.sleep(0)  # it waits for the end of the turn
        parts.put("kid", Working(), parent="lea", run="run-again")
        await hub.observer.observe(kid, HolderGone(at=time.time(), reason="killed"))
        with pytest.raises(BullpenError, match="kid is not finished: working"):
            await merging

    in_parts(story)

"""Moments between two steps of a start, a stop or a clean-up, in the parts of a hub."""

import asyncio
import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home, make_directories
from bullpen.hub.agents import sessions
from bullpen.hub.agents.observe import draft
from bullpen.hub.agents.plan import Plan, plan_launch
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.rules import add_rule
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.background import in_daemon_thread
from bullpen.model.agent import Agent, WorktreeRef
from bullpen.model.event import Draft, Event
from bullpen.model.gc import GcPlan, GcProgress
from bullpen.model.launch import Launch
from bullpen.model.state import Idle
from tests.hub.parts import ENDED, Parts, in_parts, run, until
from tests.hub.stand_ins import held_by, locked
from tests.worktrees.repos import git

pytestmark = pytest.mark.slow

CAT, NO_PROGRAM = "/bin/cat", "/bin/no-such-program"
WAY = ("allowed:443",)


def planned(parts: Parts, program: str = CAT, name: str = "amy", **fields: Any) -> Plan:
    """A start in a terminal, with a way out of its sandbox."""
    asked = Launch(cwd="/", env={"PATH": os.defpath}, words=(program,), name=name)
    found = parts.registry.find(name)
    plan = plan_launch(parts.hub.context, asked, name, found.agent if found else None)
    return replace(plan, agent=plan.agent.model_copy(update={"tunnel": WAY, **fields}))


def tunnel_of(parts: Parts, name: str = "amy") -> Path:
    return parts.home.session(name) / "api" / "tunnel.sock"


def test_r5_a_start_beside_the_worktree_of_its_name_is_refused_with_what_to_do() -> None:
    """It would work in the person's own checkout."""

    async def story(parts: Parts) -> None:
        tree = parts.home.worktrees / "amy"
        tree.mkdir(parents=True)
        with pytest.raises(BullpenError, match=f"amy has a worktree, {tree}") as caught:
            planned(parts)
        assert "worktree.enabled=true" in caught.value.hint
        assert planned(parts, name="bob").agent.cwd == "/"
        within = Launch(cwd=str(tree), env={}, words=(CAT,), name="amy")
        assert plan_launch(parts.hub.context, within, "amy", None).agent.cwd == str(tree)

    in_parts(story)


# ── sockets and tunnels go with their run ──


def test_x5_the_tunnel_of_an_agent_that_has_ended_is_shut() -> None:
    async def story(parts: Parts) -> None:
        amy, bob = (parts.agent(name, tunnel=WAY) for name in ("amy", "bob"))
        for live in (amy, bob):
            await parts.hub.tunnels.open(live.agent.name, WAY)
        reader, writer = await asyncio.open_unix_connection(str(tunnel_of(parts)))
        await parts.hub.watch.ended(amy, {"code": 0})
        with contextlib.suppress(ConnectionResetError):  # not even let in
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert not tunnel_of(parts).exists()
        assert tunnel_of(parts, "bob").exists()
        assert [event["agent"] for event in parts.events_now("agent.stopped")] == ["amy"]

    in_parts(story)


def test_x5_a_way_out_that_is_led_elsewhere_holds_after_a_restart_of_the_hub() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy", kind="headless")
        await parts.tasks.driver.run_starter.open_tunnel(amy, WAY)
        assert tunnel_of(parts).exists()
        assert sessions.load(parts.home, "amy").tunnel == WAY
        await parts.tasks.driver.run_starter.open_tunnel(amy, ())
        assert not tunnel_of(parts).exists()
        assert sessions.load(parts.home, "amy").tunnel == ()

    in_parts(story)


def test_b2_a_start_that_fails_leaves_nothing_for_the_next_to_stumble_over() -> None:
    async def story(parts: Parts) -> None:
        starter = parts.hub.starter
        seen: list[LiveAgent] = []
        hold = parts.factory.hold

        async def look(fields: dict[str, Any]) -> dict[str, Any]:
            seen.extend(filter(None, [parts.registry.find("amy")]))
            return await hold(fields)

        parts.factory.hold = look  # type: ignore[method-assign]
        with pytest.raises(BullpenError):
            await starter.start(planned(parts, NO_PROGRAM), None)
        assert parts.registry.find("amy") is None
        assert not parts.home.session("amy").exists()
        assert seen[0].over.is_set()  # whoever waits for its end is told
        await until(lambda: parts.events_now("agent.stopped"))
        assert [event["run"] for event in parts.events_now("agent.stopped")] == [seen[0].agent.run]
        # The same name and the same way out: a new socket and a new tunnel.
        amy = await starter.start(planned(parts), None)
        assert tunnel_of(parts).exists()
        assert (parts.home.session("amy") / "api" / "hub.sock").exists()
        await parts.hub.stopper.stop("amy", 0)
        assert amy.over.is_set()

    in_parts(story, factory=True)


def test_b2_a_start_that_fails_leaves_the_agent_of_before() -> None:
    async def story(parts: Parts) -> None:
        last = parts.agent("amy", ENDED)
        with pytest.raises(BullpenError):
            await parts.hub.starter.start(planned(parts, NO_PROGRAM), last.agent)
        assert parts.registry.find("amy") is last
        assert sessions.load(parts.home, "amy") == last.agent
        assert sessions.load_launch_env(parts.home, "amy") == LaunchEnv({"PATH": os.defpath})
        await until(lambda: parts.events_now("agent.stopped"))
        assert parts.events_now("agent.state")[-1]["run"] == last.agent.run

    in_parts(story, factory=True)


def test_b2_a_start_waits_for_what_the_end_of_the_last_run_leads_to() -> None:
    async def story(parts: Parts) -> None:
        last = parts.agent("amy", ENDED)
        last.over.clear()
        start = parts.hub.starter.start(planned(parts), last.agent)
        starting = asyncio.create_task(start)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(starting), 0.3)
        assert parts.registry.find("amy") is last
        assert parts.events_now("agent.starting") == []
        last.over.set()
        await starting
        await parts.hub.stopper.stop("amy", 0)

    in_parts(story, factory=True)


def test_b2_an_agent_whose_adoption_fails_is_looked_at_again() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy")
        directory, socket = parts.home.session("amy"), parts.home.socket("amy")
        append = parts.store.append

        async def refuse(*_drafts: Draft) -> list[Event]:
            raise BullpenError("the disk is full", kind=Kind.UNAVAILABLE)

        parts.store.append = refuse  # type: ignore[method-assign]
        with locked(directory), pytest.raises(BullpenError, match="full"):
            await parts.hub.stopper._kinds["interactive"].adopt(amy)
        async with held_by(directory, socket, tag=amy.agent.run):
            parts.store.append = append  # type: ignore[method-assign]
            await until(lambda: amy.link is not None)

    in_parts(story)


def test_b2_an_agent_that_cannot_be_adopted_yet_is_looked_at_again() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy")
        place = parts.home.session("amy"), parts.home.socket("amy")
        async with held_by(*place, tag="of another run") as holder:
            await parts.hub.stopper._kinds["interactive"].adopt(amy)
            assert amy.link is None
            holder.tag = amy.agent.run
            await until(lambda: amy.link is not None)

    in_parts(story)


def test_b2_one_run_asked_for_twice_at_once_is_one_agent() -> None:
    async def story(parts: Parts) -> None:
        env = {"PATH": os.defpath}
        asked = Launch(cwd="/", env=env, words=(CAT,), run="0" * 32)
        found = await asyncio.gather(*(parts.hub.launcher.launch(asked) for _ in range(3)))
        assert len({id(live) for live in found}) == 1
        assert [live.agent.name for live in parts.registry] == ["cat"]
        # Without the same run they are others, each with a name of its own.
        other = asked.model_copy(update={"run": None})
        others = await asyncio.gather(*(parts.hub.launcher.launch(other) for _ in range(2)))
        assert {live.agent.name for live in others} == {"cat-2", "cat-3"}
        assert not any(map(parts.registry.is_claimed, ("cat", "cat-2")))
        for live in parts.registry:
            await parts.hub.stopper.stop(live.agent.name, 0)

    in_parts(story, factory=True)


def test_b2_a_run_that_was_taken_back_is_begun_as_another() -> None:
    async def story(parts: Parts) -> None:
        asked = Launch(cwd="/", env={"PATH": os.defpath}, words=(CAT,), run="0" * 32)
        gone = Agent(name="cat", run="0" * 32, cwd="/", command=("x",), created="")
        await parts.store.append(draft("agent.stopped", gone, {"failed": "x"}, key="stopped"))
        live = await parts.hub.launcher.launch(asked)
        assert live.agent.run != "0" * 32
        # Its own end is recorded, though the first one's was.
        await parts.hub.stopper.stop("cat", 0)
        assert {event["run"] for event in parts.events_now("agent.stopped")} == {
            gone.run,
            live.agent.run,
        }

    in_parts(story, factory=True)


def test_k4_an_end_is_told_once_whoever_finds_out() -> None:
    async def story(parts: Parts) -> None:
        amy = parts.agent("amy")
        watch = parts.hub.watch
        await asyncio.gather(*(watch.ended(amy, {"code": 3}) for _ in range(2)))
        await watch.reconcile(amy)
        assert [event["code"] for event in parts.events_now("agent.stopped")] == [3]
        assert amy.over.is_set()

    in_parts(story)


# ── sweeping ──


def test_r8_work_that_comes_after_the_plan_keeps_the_worktree(tmp_path: Path) -> None:
    async def story(parts: Parts) -> None:
        repo = tmp_path / "repo"
        git(tmp_path, "init", "-q", "-b", "main", str(repo))
        git(repo, "commit", "-q", "--allow-empty", "-m", "first")
        site = open_site(parts.home, parts.hub.settings, repo)
        worktrees.ensure(site, worktrees.Spec("amy"))
        path = worktrees.path_for(site, "amy")
        place = WorktreeRef(name="amy", repo=str(site.repo.common_dir), path=str(path))
        parts.agent("amy", ENDED, worktree=place, cwd=str(path))
        results = []
        async for told in parts.hub.gc.collect(0.0, force=False, dry_run=False):
            if isinstance(told, GcProgress) and told.doing == "removing" and not told.number:
                (path / "work").write_text("of hours")
            if isinstance(told, GcPlan):
                results = [(step.do, step.what) for step in told.steps]
        assert results == [("keep", "worktree"), ("keep", "session")]
        assert (path / "work").read_text() == "of hours"
        assert parts.events_now("worktree.removed") == []

    in_parts(story)


# ── what a plan takes over from the last run ──


@pytest.mark.parametrize("role", ["coder", "reviewer"])
def test_what_was_allowed_for_good_was_allowed_to_that_role(role: str) -> None:
    async def story(parts: Parts) -> None:
        for name in ("coder", "reviewer"):
            parts.role(name, CAT)
        last = parts.agent("amy", ENDED, role="coder", conversation="talk").agent
        add_rule(parts.home.session("amy"), "Bash(make:*)")
        asked = Launch(cwd="/", env={}, role=role, name="amy")
        plan = plan_launch(parts.hub.context, asked, "amy", last)
        assert plan.start.rules == (("Bash(make:*)",) if role == "coder" else ())
        assert plan.agent.created == last.created
        assert plan.agent.run != last.run
        assert plan.agent.token_hash != last.token_hash
        assert plan.start.conversation == ""  # nobody asked to resume

    in_parts(story)


# ── names ──


def test_b2_a_name_is_taken_by_who_runs_starts_or_is_about_to() -> None:
    async def story(parts: Parts) -> None:
        registry = parts.registry
        assert not registry.is_taken("amy")
        amy = parts.agent("amy", ENDED)
        assert not registry.is_taken("amy")
        async with amy.lock:
            assert registry.is_taken("amy")
        with registry.claim("amy", "run"):
            assert registry.is_taken("amy")
            assert registry.is_taken("amy", "another")
            assert not registry.is_taken("amy", "run")
            assert registry.free_name("amy") == "amy-2"
        assert not registry.is_taken("amy")
        registry.mark_broken("amy-2", "why")
        amy.view = amy.view.model_copy(update={"state": Idle()})
        assert registry.free_name("amy") == "amy-3"
        with pytest.raises(BullpenError, match="why") as refused:
            registry.get("amy-2")
        assert refused.value.kind is Kind.CONFLICT

    in_parts(story)


def test_b2_nobody_is_found_in_an_empty_registry() -> None:
    with pytest.raises(BullpenError, match="no agent called amy · none is running"):
        Registry().get("amy")


# ── sessions on disk ──


@pytest.fixture
def home(tmp_path: Path) -> Home:
    make_directories(tmp_path)
    return Home(tmp_path)


def an_agent(run: str, name: str = "amy") -> Agent:
    return Agent(name=name, run=run, cwd="/", command=("x",), created="")


def test_p5_only_the_run_that_failed_is_taken_back(home: Home) -> None:
    sessions.create(home, an_agent("later"), LaunchEnv({}))
    sessions.take_back(home, "amy", "failed", "key")
    assert sessions.load(home, "amy").run == "later"
    sessions.take_back(home, "amy", "later", "key")
    assert not home.session("amy").exists()


def test_p5_what_was_set_aside_comes_back_whole(home: Home) -> None:
    sessions.create(home, an_agent("before"), LaunchEnv({"A": "before"}))
    (home.session("amy") / "exit.json").write_text("{}")
    sessions.set_aside(home, "amy", "key")
    sessions.rewrite(home, an_agent("failed"), LaunchEnv({"A": "failed"}))
    (home.session("amy") / "exit.json").unlink()
    (home.session("amy") / "holder.json").write_text("{}")
    for _ in range(2):  # it may be repeated
        sessions.take_back(home, "amy", "failed", "key")
        assert sessions.load(home, "amy").run == "before"
        assert sessions.load_launch_env(home, "amy").env == {"A": "before"}
        assert (home.session("amy") / "exit.json").exists()
        assert not (home.session("amy") / "holder.json").exists()
        assert list(home.private("amy").iterdir()) == [home.private("amy") / "env"]


def test_p5_a_session_that_another_start_rewrote_is_left_alone(home: Home) -> None:
    sessions.create(home, an_agent("before"), LaunchEnv({}))
    sessions.set_aside(home, "amy", "key")
    sessions.rewrite(home, an_agent("later"), LaunchEnv({"A": "later"}))
    sessions.take_back(home, "amy", "failed", "key")
    assert sessions.load(home, "amy").run == "later"
    assert sessions.load_launch_env(home, "amy").env == {"A": "later"}


def test_h7_a_session_is_private_and_whole_or_not_there(home: Home) -> None:
    sessions.create(home, an_agent("run"), LaunchEnv({"A": "x"}, umask=0o077, rows=1, cols=2))
    place = home.session("amy")
    modes = {path.name: path.stat().st_mode & 0o777 for path in [place, *place.rglob("*")]}
    assert modes == {"amy": 0o700, "session.json": 0o600, "private": 0o700, "env": 0o600}
    with pytest.raises(BullpenError, match="there is a session of amy already"):
        sessions.create(home, an_agent("other"), LaunchEnv({}))
    assert sessions.load(home, "amy").run == "run"
    assert sessions.names(home) == ["amy"]
    assert list(home.sessions.iterdir()) == [place]  # nothing half-made beside it
    place.rename(home.session("bob"))
    with pytest.raises(BullpenError, match="it is the session of amy"):
        sessions.load(home, "bob")


# ── threads ──


def test_c3_a_thread_that_nobody_waits_for_any_more_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    go, threads = threading.Event(), []

    def work() -> None:
        threads.append(threading.current_thread())
        go.wait(60)

    async def story() -> None:
        waiting = asyncio.ensure_future(in_daemon_thread(work))
        await until(lambda: threads)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(story())
    go.set()
    threads[0].join(60)
    assert failed == []

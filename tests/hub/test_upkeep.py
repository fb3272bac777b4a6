"""What the hub does by itself: once a day, whatever happens to hubs meanwhile."""

import asyncio
import fcntl
import itertools
import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from bullpen import worktrees
from bullpen.hub.store.store import Store
from bullpen.hub.upkeep import DAY_SECONDS, LOOK_AGAIN_SECONDS, Job, UpkeepPlan, plan_upkeep
from bullpen.model.event import Draft
from bullpen.worktrees.create import _put_in_place
from tests.hub.pen import Pen
from tests.hub.pods.support import deadly_hub, write_role
from tests.hub.programs import SLEEP
from tests.listing import delete
from tests.steps import before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

TREE = "worktree: {enabled: true, branch_from: main}"
NOW = 1_800_000_000.0
HOUR = 3600.0
BOTH = (Job.WORKTREES, Job.EVENTS)


# ── what is due ──


@pytest.mark.parametrize(
    ("worktrees_ago", "events_ago", "due", "wait"),
    [
        (None, None, BOTH, LOOK_AGAIN_SECONDS),  # never done
        (0.0, 0.0, (), LOOK_AGAIN_SECONDS),
        (23 * HOUR, 23.5 * HOUR, (), 0.5 * HOUR),
        (24 * HOUR, 1 * HOUR, (Job.WORKTREES,), LOOK_AGAIN_SECONDS),
        (1 * HOUR, 30 * HOUR, (Job.EVENTS,), LOOK_AGAIN_SECONDS),
        (400 * HOUR, 23.9 * HOUR, (Job.WORKTREES,), 0.1 * HOUR),
        (-1.0, -900 * HOUR, BOTH, LOOK_AGAIN_SECONDS),  # the clock was wrong then
    ],
)
def test_w11_each_is_due_a_day_after_the_last_time(
    worktrees_ago: float | None, events_ago: float | None, due: tuple[Job, ...], wait: float
) -> None:
    ago = {Job.WORKTREES: worktrees_ago, Job.EVENTS: events_ago}
    last = {job: NOW - seconds for job, seconds in ago.items() if seconds is not None}
    found = plan_upkeep(NOW, last)
    assert (found.jobs, found.wait_seconds) == (due, pytest.approx(wait))


@pytest.mark.parametrize("lives_seconds", [600.0, HOUR, 7 * HOUR, 100 * HOUR])
def test_w11_done_once_a_day_however_long_hubs_live(lives_seconds: float) -> None:
    """A month of hubs that are killed after so long, and look as often as they are told to."""
    last: dict[Job, float] = {}
    done: list[float] = []
    now = NOW
    while now < NOW + 30 * DAY_SECONDS:
        end = now + lives_seconds
        while now < end:
            due = plan_upkeep(now, last)
            assert isinstance(due, UpkeepPlan)
            last |= dict.fromkeys(due.jobs, now)
            done += [now] * (Job.WORKTREES in due.jobs)
            now += due.wait_seconds
        now = end
    gaps = [later - earlier for earlier, later in itertools.pairwise(done)]
    assert min(gaps) >= DAY_SECONDS
    assert max(gaps) <= DAY_SECONDS + max(lives_seconds, LOOK_AGAIN_SECONDS)


# ── what is done ──


def settle_with(pen: Pen, *rules: str) -> None:
    """`worktrees` of the home's settings."""
    config = pen.root / "config.yaml"
    config.write_text(config.read_text() + "worktrees:\n" + "".join(f"  {r}\n" for r in rules))


def agents(pen: Pen, repo: Path, *names: str) -> None:
    write_role(pen, "worker", list(SLEEP), TREE)
    for name in names:
        ran = pen.cli("run", "--role", "worker", "--name", name, cwd=repo)
        assert ran.code == 0, ran


def make_old(pen: Pen, name: str) -> None:
    """As if the worktree had been made a year ago."""
    path = pen.root / "worktrees" / ".records" / f"{name}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "created_at": "2020-01-01T00:00:00Z"}))


def turns(pen: Pen) -> list[dict[str, Any]]:
    return pen.events(kind="upkeep.worktrees")


def kill_hub_of_yesterday(pen: Pen, kind: str) -> None:
    """Once it has done that for the first time, which then was a day ago."""
    wait_until(lambda: pen.events(kind=kind) != [])
    pen.kill_hub()
    with sqlite3.connect(pen.root / "state.db") as database:
        words = "UPDATE events SET time = time - ? WHERE kind = ?"
        database.execute(words, (DAY_SECONDS, kind))
    database.close()


@pytest.mark.storm
def test_w11_old_worktrees_of_ended_agents_go_daily_and_no_others(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    settle_with(pen, "auto_cleanup_age: 1h")
    names = ["young", "old", "dirty", "ahead", "runs", "lost", "locked"]
    agents(pen, repo, *names)
    wait_until(lambda: len(turns(pen)) == 1)  # of an empty home
    assert pen.cli("worktree", "create", "mine", cwd=repo).code == 0
    for name in [*names[1:], "mine"]:
        make_old(pen, name)
    (pen.root / "worktrees" / "dirty" / "new.txt").write_text("x\n")
    commit(pen.root / "worktrees" / "ahead", "ahead.txt")
    for name in ("young", "old", "dirty", "ahead", "locked"):
        pen.stop(name)
    os.kill(pen.holder("lost"), signal.SIGKILL)
    wait_until(lambda: pen.state("lost").startswith("lost"))
    assert pen.cli("worktree", "lock", "locked", cwd=repo).code == 0
    pen.kill_hub()
    pen.start()
    assert len(turns(pen)) == 1  # done today
    kill_hub_of_yesterday(pen, "upkeep.worktrees")
    pen.start()
    wait_until(lambda: len(turns(pen)) == 2)
    there = {path.name for path in (pen.root / "worktrees").iterdir() if path.name[0] != "."}
    assert there == {*names, "mine"} - {"old"}
    last = turns(pen)[-1]
    assert last["removed"] == ["old"]
    assert last["left"] == {
        "dirty": "dirty has 1 uncommitted file (new.txt)",
        "ahead": "1 commit exists nowhere else",
        "runs": "its agent has not ended",
        "lost": "its agent has not ended",
        "mine": "its agent has not ended",
        "locked": "locked is locked",
    }
    assert [event["why"] for event in pen.events("old", "worktree.removed")] == ["its age"]
    assert not pen.agents()["old"]["running"]  # its session is there


def test_w11_w12_old_worktrees_go_also_where_they_were_made_before(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    agents(pen, repo, "old")
    make_old(pen, "old")
    pen.stop("old")
    kill_hub_of_yesterday(pen, "upkeep.worktrees")
    settle_with(pen, "auto_cleanup_age: 1h", "base: trees")
    pen.start()
    wait_until(lambda: len(turns(pen)) == 2)
    assert turns(pen)[-1]["removed"] == ["old"]
    assert not (pen.root / "worktrees" / "old").exists()


@pytest.mark.storm
def test_w11_off_by_default(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    agents(pen, repo, "old")
    make_old(pen, "old")
    pen.stop("old")
    kill_hub_of_yesterday(pen, "upkeep.worktrees")
    pen.start()
    wait_until(lambda: len(turns(pen)) == 2)
    assert (turns(pen)[-1]["removed"], turns(pen)[-1]["left"]) == ([], {})
    assert (pen.root / "worktrees" / "old").exists()


@pytest.mark.storm
def test_w6_hub_start_rolls_back_what_a_killed_one_left_half_made(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    write_role(pen, "worker", list(SLEEP), TREE)
    with deadly_hub(pen, before(_put_in_place)):
        body = pen.launch(role="worker", name="amy", words=[], cwd=str(repo))
        with pytest.raises(Exception, match="the hub went away"):
            pen.ask("POST", "/agents", body)
    journal = repo / ".git" / "bullpen" / "journal"
    assert list(journal.glob("*.json"))
    pen.start()
    wait_until(lambda: not list(journal.glob("*.json")))
    wait_until(lambda: git(repo, "branch", "--format=%(refname:short)") == "main")
    assert pen.state("amy").startswith("lost")


@pytest.mark.storm
def test_w7_copies_are_dropped_after_their_time_also_without_sessions(pen: Pen) -> None:
    """The repository is remembered as long as something is kept there."""
    repo = make_repo(pen.root.parent / "repo")
    agents(pen, repo, "amy")
    (pen.root / "worktrees" / "amy" / "new.txt").write_text("x\n")
    pen.stop("amy")
    assert pen.cli("worktree", "remove", "--force", "amy", cwd=repo).code == 0
    kill_hub_of_yesterday(pen, "upkeep.worktrees")
    pen.start()
    wait_until(lambda: turns(pen)[-1]["with_copies"] == [str(repo / ".git")])
    assert pen.cli("gc", "--older-than", "0s").code == 0
    assert pen.agents() == {}
    (copy,) = git(repo, "for-each-ref", "--format=%(refname)", "refs/bullpen").split()
    git(repo, "update-ref", copy.rpartition("/")[0] + "/20200101T000000", copy)
    git(repo, "update-ref", "-d", copy)
    pen.kill_hub()
    pen.start()
    wait_until(lambda: git(repo, "for-each-ref", "refs/bullpen") == "")


def test_b3_events_expire_after_a_month(pen: Pen) -> None:
    pen.start()
    kill_hub_of_yesterday(pen, "upkeep.events")
    store = Store.open(pen.root / "state.db")
    month = 31 * DAY_SECONDS
    old = [Draft(time.time() - month, "input.typed", "amy", {"n": n}) for n in range(1200)]
    for start in range(0, len(old), 100):
        asyncio.run(store.append(*old[start : start + 100]))
    asyncio.run(store.append(Draft(time.time() - month, "agent.state", "amy")))
    asyncio.run(store.append(Draft(time.time() - 29 * DAY_SECONDS, "input.typed", "bob")))
    store.close()
    pen.start()
    wait_until(lambda: len(pen.events(kind="upkeep.events")) >= 2)
    assert pen.events(kind="upkeep.events")[-1]["expired"] == 1201
    assert len(pen.events(kind="input.typed")) == 1
    assert pen.events("amy", "agent.state") == []  # the last word stays of agents that are there


@pytest.mark.storm
def test_w15_pool_is_filled_again_after_an_agent_took_one(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    settle_with(pen, "pool: 2")
    site = worktrees.open_site(repo, pen.root / "worktrees", pool=2)
    agents(pen, repo, "amy")
    wait_until(lambda: len(worktrees.list_ready(site)) == 2)
    ready = {entry.id for entry in worktrees.list_ready(site)}
    agents(pen, repo, "bob")
    record = worktrees.find_record(site, "bob")
    assert record is not None
    assert record.id in ready
    wait_until(lambda: len(worktrees.list_ready(site)) == 2)


@pytest.mark.storm
def test_w15_pool_is_filled_at_the_start_of_a_hub(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    agents(pen, repo, "amy")
    pen.kill_hub()
    settle_with(pen, "pool: 1")
    pen.start()
    site = worktrees.open_site(repo, pen.root / "worktrees", pool=1)
    wait_until(lambda: len(worktrees.list_ready(site)) == 1)


@pytest.mark.storm
def test_w11_repository_that_is_gone_is_logged_and_harms_nobody(pen: Pen) -> None:
    repo, gone = make_repo(pen.root.parent / "repo"), make_repo(pen.root.parent / "gone")
    agents(pen, repo, "amy")
    agents(pen, gone, "bob")
    delete(gone)
    kill_hub_of_yesterday(pen, "upkeep.worktrees")
    pen.start()
    wait_until(lambda: len(turns(pen)) == 2)
    assert list(turns(pen)[-1]["failed"]) == [str(gone / ".git")]
    assert pen.logged("cannot look after a repository")
    wait_until(lambda: len(pen.events(kind="upkeep.events")) >= 1)


@pytest.mark.storm
def test_w11_repository_that_somebody_holds_does_not_hold_the_hub(pen: Pen) -> None:
    repo = make_repo(pen.root.parent / "repo")
    agents(pen, repo, "amy")
    pen.kill_hub()
    with (repo / ".git" / "bullpen" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pen.start()
        assert pen.agents()["amy"]["running"]
        assert pen.cli("run", "--", *SLEEP).code == 0
        assert pen.cli("hub", "stop").code == 0  # it says how long it waited in vain

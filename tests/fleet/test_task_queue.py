"""L3: tasks that agents of all machines take from one queue. Each has one recorded end."""

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.fleet import bundles
from bullpen.fleet.task_records import OLDEST_SECONDS
from bullpen.fleet.task_server import TaskServer
from bullpen.hub.fleet_tasks.incoming import IncomingTasks
from bullpen.hub.fleet_tasks.leases import LeaseRows
from bullpen.hub.fleet_tasks.local import LocalTasks
from bullpen.hub.fleet_tasks.outgoing import OutgoingTasks
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.model.task_moves import end_elsewhere
from tests.directors.running import made_scheduler
from tests.fleet.queues import Queues, made_queues
from tests.hub.pods.support import deadly_hub
from tests.steps import after, before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    with made_queues(tmp_path_factory.mktemp("queues")) as queues:
        yield queues


@pytest.fixture
def queues(made: Queues) -> Queues:
    made.may_go()
    return made


def test_l3_an_agent_of_another_machine_takes_it_and_its_branch_comes_back(queues: Queues) -> None:
    ran = queues.h1.cli(
        *("task", "--any", "--fleet", "--role", "tim", "--repo", queues.repo),
        *("--worktree", "feature", "feature"),
    )
    assert (ran.code, ran.out) == (0, "did feature\n"), ran
    assert "on what is committed in" in ran.err
    assert git(queues.repo, "log", "--format=%s", "main..feature") == "Do feature"
    assert git(queues.repo, "show", "feature:new.txt") == "feature"
    assert git(queues.repo, "for-each-ref", "refs/bullpen") == ""
    assert queues.runs("feature") == 1


def test_l3_whoever_stands_in_a_repository_sends_what_is_committed(queues: Queues) -> None:
    (queues.repo / "file1.txt").write_text("not committed\n")
    words = ("task", "--any", "--fleet", "here")
    ran = queues.h1.cli(*words, cwd=queues.repo)
    assert (ran.code, ran.out) == (0, "did here\n"), ran
    branch = ran.err.partition("its work comes as ")[2].split()[0]
    assert git(queues.repo, "log", "--format=%s", f"main..{branch}") == "Do here"
    git(queues.repo, "checkout", "-q", "file1.txt")
    ran = queues.h1.cli(*words, "--scratch", cwd=queues.repo)
    assert ran.code == 0 and "in an empty directory of its own" in ran.err


def test_l1_d1_a_schedule_has_agents_of_all_machines_work_and_their_branches_come_back(
    queues: Queues,
) -> None:
    entry = {"name": "a..b", "cron": "@yearly", "prompt": "nightly", "role": "tim", "fleet": True}
    with made_scheduler(queues.h1, {**entry, "workdir": str(queues.repo)}) as director:
        assert "tim of the fleet" in director.cli("schedule", "list").out
        ran = director.cli("schedule", "run", "a..b")
        assert ran.code == 0, ran
        wait_until(lambda: bool(director.ask("GET", "/history")["items"]), 120)
        (row,) = director.ask("GET", "/history")["items"]
    assert (row["state"], row["agent"]) == ("completed", "h2/tim"), row
    (branch,) = git(
        queues.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/schedule"
    ).split()
    assert branch.startswith("schedule/a--b-20")
    assert git(queues.repo, "log", "--format=%s", f"main..{branch}") == "Do nightly"


def test_l3_a_branch_that_went_on_meanwhile_is_left_alone(queues: Queues) -> None:
    queues.may_go(False)
    git(queues.repo, "branch", "moved")
    id = queues.ask_on_repo("moved")
    wait_until(lambda: queues.runs("moved") == 1)
    git(queues.repo, "checkout", "-q", "moved")
    ours = commit(queues.repo, "ours.txt")
    queues.may_go()
    shown = queues.over(id)
    git(queues.repo, "checkout", "-q", "main")
    assert shown["warnings"] == [f"moved has gone on meanwhile: its work is moved-{id}"]
    assert git(queues.repo, "rev-parse", "moved") == ours
    assert git(queues.repo, "log", "--format=%s", f"main..moved-{id}") == "Do moved"


def test_l3_commits_wait_for_a_repository_that_is_away(queues: Queues) -> None:
    """As for a disk that is full: nobody has to look for them on the other machine."""
    queues.may_go(False)
    id = queues.ask_on_repo("away")
    wait_until(lambda: queues.runs("away") == 1)
    aside = queues.repo.rename(queues.repo.parent / "aside")
    queues.may_go()
    wait_until(lambda: queues.task(id)["warnings"] != [])
    shown = queues.task(id)
    assert (shown["state"], shown["agent"]) == ("working", "h2/tim"), shown
    assert "its commits cannot be stored yet: no such directory" in shown["warnings"][0]
    aside.rename(queues.repo)
    check_once(queues, id, "away")
    assert queues.task(id)["warnings"] == []


def test_l3_whoever_waits_no_longer_for_commits_is_told_where_they_are(queues: Queues) -> None:
    queues.may_go(False)
    id = queues.ask_on_repo("gone")
    wait_until(lambda: queues.runs("gone") == 1)
    aside = queues.repo.rename(queues.repo.parent / "aside")
    queues.may_go()
    wait_until(lambda: queues.task(id)["warnings"] != [])
    assert queues.h1.cli("task", "cancel", id).code == 0
    shown = queues.over(id)
    aside.rename(queues.repo)
    assert shown["state"] == "completed"
    (warning,) = shown["warnings"]
    assert "what was committed did not arrive: no such directory" in warning
    assert warning.endswith(f"h2 has it as branch fleet-h1-{id}-1")
    assert queues.checkouts(id) != []


@pytest.mark.storm
def test_l3_repositories_of_the_same_name_have_nothing_in_common(queues: Queues) -> None:
    other = make_repo(queues.repo.parent / "other" / queues.repo.name)
    secret = commit(other, "secret.txt")
    ids = [
        queues.ask("named-alike", repo=str(repo), worktree="named-alike")
        for repo in (other, queues.repo)
    ]
    assert [queues.over(id)["state"] for id in ids] == ["completed", "completed"]
    clones = list((queues.h2.root / "projects").glob("fleet-h1.*"))
    words = ("cat-file", "--batch-check=%(objectname)", "--batch-all-objects")
    assert [secret in git(clone, *words).split() for clone in clones].count(True) == 1


@pytest.mark.storm
def test_l3_it_waits_for_whoever_fits_and_says_so(queues: Queues) -> None:
    words = ("task", "--any", "--fleet", "--no-wait", "--scratch", "--label", "gpu=yes", "gpu")
    ran = queues.h1.cli(*words)
    assert ran.code == 0 and "nobody of the fleet who may take it" in ran.err, ran
    other = queues.ask("other")
    assert queues.over(other)["state"] == "completed"
    id = ran.out.strip()
    assert queues.task(id)["state"] == "queued"
    queues.machines.join("h2", "--label", "gpu=yes")
    assert queues.over(id)["output"] == "did gpu"
    wait_until(lambda: "gpu=yes" in queues.h1.cli("fleet", "status").out)
    ran = queues.h1.cli(*words)
    assert ran.code == 0 and "nobody" not in ran.err, ran
    assert queues.over(ran.out.strip())["agent"] == "h2/tim"


def test_l3_an_agent_that_cannot_begin_it_fetches_nothing_and_the_asker_sees_why(
    queues: Queues,
) -> None:
    with queues.logged_out():
        id = queues.ask_on_repo("locked")
        wait_until(lambda: queues.task(id)["warnings"] != [])
        shown = queues.task(id)
        assert shown["state"] == "queued"
        assert shown["warnings"] == [
            "h2/tim could not begin it: nobody is logged in to Claude Code"
        ]
        assert not queues.was_fetched(id) and queues.h2.logged("a task was given back")
    shown = queues.over(id)
    assert (shown["output"], shown["warnings"]) == ("did locked", [])
    assert queues.ends(id) == ["completed"]


UNCHECKED = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.hub.fleet_tasks.local import LocalTasks
    async def check(self, name):
        pass
    LocalTasks.check = check
"""


@pytest.mark.storm
def test_l3_what_was_fetched_for_one_that_is_given_back_is_removed(tmp_path: Path) -> None:
    """Its agent lost its login after it was looked at."""
    with made_queues(tmp_path, UNCHECKED) as queues, queues.logged_out():
        id = queues.ask_on_repo("lost-login")
        wait_until(lambda: len(queues.h2.logged("a task was given back")) > 1)
        assert queues.h1.cli("task", "cancel", id).code == 0
        assert queues.over(id)["state"] == "cancelled"
        wait_until(lambda: queues.was_fetched(id) and queues.checkouts(id) == [])


@pytest.mark.storm
def test_l3_a_task_is_cancelled_wherever_it_is(queues: Queues) -> None:
    queues.may_go(False)
    waits = queues.ask("waits", role="nobody")
    runs = queues.ask("runs")
    wait_until(lambda: queues.runs("runs") == 1)
    assert queues.wait(runs, "working")["agent"] == "h2/tim"
    for id in (waits, runs):
        assert queues.h1.cli("task", "cancel", id).code == 0
        assert queues.over(id)["state"] == "cancelled"
    # There, too: its agent is free again while nothing may go on.
    wait_until(lambda: queues.desk.status("tim")["state"] == "idle")
    assert queues.ends(runs) == ["cancelled"]


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"TOKEN": "secret"}},
        {"workdir": "/tmp"},
        {"repo": "https://example.com/shop.git", "worktree": "main"},
        {"keep_open": True},
        {"priority": 3},
        {"labels": {f"label{number}": "x" * 30 for number in range(9)}},
        {"prompt": "x" * (950 << 10)},
    ],
)
@pytest.mark.few(3)
def test_l3_what_cannot_travel_is_refused_before_it_is_acknowledged(
    queues: Queues, fields: dict[str, object]
) -> None:
    body = {"prompt": "it", "fleet": True, **fields}
    status, answer = queues.h1.ask("POST", "/tasks", body)
    assert status == 400 and "a task for the fleet" in answer["message"], answer


def test_l3_a_repository_without_a_commit_ends_it_with_the_reason(queues: Queues) -> None:
    empty = queues.h1.root.parent / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    shown = queues.over(queues.ask("empty", repo=str(empty), worktree="x"))
    assert shown["state"] == "failed" and "has no commit yet" in shown["error"]["message"]


def test_l3_one_that_nobody_has_taken_for_a_week_fails_and_says_so(queues: Queues) -> None:
    id = queues.ask("old", role="nobody")
    queues.h1.kill_hub()
    with contextlib.closing(sqlite3.connect(queues.h1.root / "state.db")) as database, database:
        words = "UPDATE tasks SET data = json_set(data, '$.created', ?) WHERE id = ?"
        database.execute(words, (time.time() - 1.01 * OLDEST_SECONDS, id))
    queues.start(queues.h1)
    shown = queues.over(id)
    assert shown["state"] == "failed"
    assert "nobody of the fleet has it 7 days after" in shown["error"]["message"]
    assert queues.ends(id) == ["failed"]


TAKER = {
    "about to write the lease down": before(LeaseRows.put),
    "wrote the lease down": after(LeaseRows.put),
    "leased": after(IncomingTasks._renew),
    "made the worktree": after(LocalTasks._make_worktree),
    "gave the task": after(TaskQueue.submit),
    "noted the task": after(LeaseRows.put, 2),
    "sent the commits": after(TaskServer.send_parcel),
    "about to record the end": before(IncomingTasks._record),
    "recorded the end": after(IncomingTasks._record),
    "forgot the lease": after(LeaseRows.drop),
}
ASKER = {
    "pinned": after(bundles.pin),
    "packed": after(bundles.pack),
    "sent the repository": after(TaskServer.send_parcel),
    "offered": after(TaskServer.offer),
    "heard of the end": before(OutgoingTasks._take_end),
    "took the branch": after(bundles.take_result),
    "about to copy the end": before(end_elsewhere),
    "copied the end": after(OutgoingTasks._take_end),
}
FEW = ("gave the task", "took the branch")


def steps(names: dict[str, str]) -> list[object]:
    return [
        pytest.param(
            name, marks=() if name in FEW else pytest.mark.storm, id=name.replace(" ", "-")
        )
        for name in names
    ]


@pytest.mark.parametrize("step", steps(TAKER))
@pytest.mark.storm
def test_l3_the_hub_that_does_it_is_killed_at_a_step(queues: Queues, step: str) -> None:
    prompt = f"taker-{step.replace(' ', '-')}"
    queues.h2.kill_hub()
    with deadly_hub(queues.h2, TAKER[step]):
        id = queues.ask_on_repo(prompt)
    queues.start(queues.h2)
    check_once(queues, id, prompt)


@pytest.mark.parametrize("step", steps(ASKER))
@pytest.mark.storm
def test_l3_the_hub_that_asks_is_killed_at_a_step(queues: Queues, step: str) -> None:
    prompt, request = f"asker-{step.replace(' ', '-')}", uuid.uuid4().hex
    queues.h1.kill_hub()
    with deadly_hub(queues.h1, ASKER[step]):
        id = queues.ask_on_repo(prompt, request=request)
    queues.start(queues.h1)
    assert queues.ask_on_repo(prompt, request=request) == id
    check_once(queues, id, prompt)


def check_once(queues: Queues, id: str, prompt: str) -> None:
    shown = queues.over(id)
    assert (shown["state"], shown["output"]) == ("completed", f"did {prompt}"), shown
    assert queues.ends(id) == ["completed"]
    assert queues.runs(prompt) == 1
    assert git(queues.repo, "log", "--format=%s", f"main..{prompt}") == f"Do {prompt}"
    assert git(queues.repo, "for-each-ref", f"refs/bullpen/fleet/{id}") == ""


@pytest.mark.storm
def test_l3_the_server_is_killed_while_it_is_done(queues: Queues) -> None:
    queues.may_go(False)
    id = queues.ask_on_repo("server")
    wait_until(lambda: queues.runs("server") == 1)
    queues.machines.kill_server()
    asked = queues.ask_on_repo("without")  # while there is none
    queues.may_go()
    wait_until(lambda: queues.desk.status("tim")["state"] == "idle")
    queues.machines.start_server()
    check_once(queues, id, "server")
    check_once(queues, asked, "without")

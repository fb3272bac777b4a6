"""The hub killed with -9 between any two steps of a task: the next one goes on where it was."""

import sqlite3
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines.claude import config as claude_config
from bullpen.errors import BullpenError, Kind
from bullpen.hot import wire
from bullpen.hub.agents import sessions
from bullpen.hub.holders import link as holder_link
from bullpen.hub.holders.factory import Factory
from bullpen.hub.holders.link import Link
from bullpen.hub.http import tasks as http_tasks
from bullpen.hub.messages.box import Messages
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan, task_changes, workspaces
from bullpen.hub.tasks.agents import TaskAgents
from bullpen.hub.tasks.driver import Driver
from bullpen.hub.tasks.leftovers import Leftovers
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.tasks.rows import TaskRows
from tests.commands import BULLPEN
from tests.hub.tasks.counters import FINAL, Counting, patiently
from tests.hub.tasks.desk import Desk, made_desk
from tests.hub.tasks.windows import Windows
from tests.steps import after, before
from tests.waiting import quiet_for, wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

KEPT = 3  # tasks in wally's history

# `_put` runs inside the transaction: after it, nothing is committed yet.
GIVING = {
    "variables about to be kept": before(run_plan.keep_variables),
    "variables kept": after(run_plan.keep_variables),
    "row about to be written": before(TaskRows.put),
    "row not committed": after(TaskRows._put),
    "row written": after(TaskRows.put),
    "taken, not answered": after(http_tasks._taken),
    "directory about to be made": before(workspaces.make),
    "directory made": after(workspaces.make),
    "directory recorded": after(TaskRows.keep_session),
    "about to be locked": before(workspaces.lock_tree),
    "locked": after(workspaces.lock_tree),
    "about to begin": before(Driver._begin),
    "beginning not committed": after(TaskRows._put, 2),
    "begun": after(Driver._begin),
    "run planned": after(run_plan.plan_run),
    "engine's files written": after(sessions.write_files),
    "in the lock of the engine's configuration": before(claude_config.ready),
    "files written": after(run_plan.write),
    "conversation recorded": after(TaskRows.keep_session, 2),
    "about to ask the factory": before(Factory.hold),
    "answered by the factory": after(holder_link.request),
    "held": after(Factory.hold),
    "agent said to be at work": after(Driver.say),
    "connected": after(holder_link.connect),
    "output read": after(task_run._read),
    "holder gone": after(task_run._released),
    "about to finish": before(Driver._finish),
    "changes looked at": after(task_changes.keep_changes),
    "end not committed": after(TaskRows._put, 3),
    "end recorded": after(TaskRows.put, 3),
    "about to be concluded": before(TaskQueue._conclude),
    "about to be unlocked": before(workspaces.unlock_tree),
    "unlocked": after(workspaces.unlock_tree),
    "variables about to be forgotten": before(run_plan.forget_variables),
    "variables forgotten": after(run_plan.forget_variables),
    "concluded": after(TaskQueue._conclude),
    "said to be idle": after(Driver.say, 2),
    "about to forget old ones": before(Leftovers.forget_old),
    "old ones forgotten": after(TaskRows.drop_old),
}
WALLED = ("files written", "about to ask the factory", "held", "output read", "about to finish")
OFFERING = {
    "row written": after(TaskRows.put),
    "about to be given out": before(TaskQueue.dispatch),
    "given out": after(TaskQueue.dispatch),
    "about to be assigned": before(TaskQueue._assign),
    "assignment not committed": after(TaskRows._put, 2),
    "assigned": after(TaskQueue._assign),
    "directory made": after(workspaces.make),
    "begun": after(Driver._begin),
}
ENDING_A_RUN = {
    "about to tell it": before(task_run.stop),
    "connected to tell it": after(holder_link.connect),
    "told": after(Link.ask),
    "holder gone": after(task_run._released),
    "about to finish": before(Driver._finish),
}
CANCELLING = {
    "about to be recorded": before(TaskRows.put),
    "not committed": after(TaskRows._put),
    "recorded": after(TaskRows.put),
    "not answered": after(TaskQueue.cancel),
    **ENDING_A_RUN,
    "end not committed": after(TaskRows._put, 2),
    "end recorded": after(TaskRows.put, 2),
    "about to be concluded": before(TaskQueue._conclude),
}
TIMING_OUT = {
    **ENDING_A_RUN,
    "end not committed": after(TaskRows._put),
    "end recorded": after(TaskRows.put),
    "about to be concluded": before(TaskQueue._conclude),
}
CANCELLING_QUEUED = {
    "not committed": after(TaskRows._put),
    "recorded": after(TaskRows.put),
    "not answered": after(TaskQueue.cancel),
    "about to be concluded": before(TaskQueue._conclude),
    "variables about to be forgotten": before(run_plan.forget_variables),
    "variables forgotten": after(run_plan.forget_variables),
}
CONTINUING = {
    "about to be recorded": before(TaskRows.put),
    "not committed": after(TaskRows._put),
    "recorded": after(TaskRows.put),
    "not answered": after(TaskQueue.continue_),
    "files written": after(run_plan.write),
    "held": after(Factory.hold),
    "about to finish": before(Driver._finish),
    "rests again, not committed": after(TaskRows._put, 2),
    "rests again": after(TaskRows.put, 2),
}
CLOSING = {
    "about to be recorded": before(TaskRows.put),
    "not committed": after(TaskRows._put),
    "recorded": after(TaskRows.put),
    "not answered": after(TaskQueue.end),
    "about to be concluded": before(TaskQueue._conclude),
}
LOADING = {
    "tasks read": after(TaskRows.open),
    "about to sweep": before(Leftovers.remove_all),
    "swept": after(Leftovers.remove_all),
    "loaded": after(TaskQueue.load),
}
RETRYING = {
    "about to finish": before(Driver._finish),
    "not committed": after(TaskRows._put),
    "recorded": after(TaskRows.put),
    "held": after(Factory.hold),
}
TELLING = {
    "messages marked": after(Messages.mark_sent),
    "about to ask the factory": before(Factory.hold),
}
# Where a hub stands still while its agents get ready.
SWEEPING = before(Leftovers.remove_all)
SECOND_TASK = before(TaskRows.find_session, 2)
CONCLUDING = before(TaskQueue._conclude)
TABLES = (GIVING, OFFERING, CANCELLING, TIMING_OUT, CANCELLING_QUEUED, CONTINUING, CLOSING)
SPECS = {spec for table in (*TABLES, LOADING, RETRYING, TELLING) for spec in table.values()}
TOLD_TO_LEAVE = after(TaskAgents.shut_down)
SPECS |= {SWEEPING, SECOND_TASK, TOLD_TO_LEAVE, CONCLUDING}


class Crashing:
    """A home whose hubs can be made to die anywhere; a repository to work in."""

    def __init__(self, desk: Desk, directory: Path) -> None:
        self.desk = desk
        self.pen = desk.pen
        self.counting = Counting(desk, directory)
        self.windows = Windows(directory / "windows", SPECS)
        self.repo = directory / "repo"
        self.pen.env["PYTHONPATH"] = str(self.windows.place)

    def body(self, name: str, how_long: str = "0.05", **fields: Any) -> dict[str, Any]:
        """A task with a secret, in a worktree of its own."""
        given = {
            "prompt": f"[[count {name} {how_long}]]",
            "request": uuid.uuid4().hex,
            "env": {"WORD": f"word-of-{name}"},
            "repo": str(self.repo),
            "worktree": name,
        }
        return {**given, **fields}

    def take(self, *path: str, body: dict[str, Any]) -> str:
        """Asked until it is answered, with the same key: the id."""
        found = patiently(lambda: self.pen.client().post(*path, body=body, again=True))
        id = str(found["task_id"])
        again = patiently(lambda: self.pen.client().post(*path, body=body, again=True))
        assert again["task_id"] == id
        return id

    def asked(self, request: str) -> int:
        """How many tasks came of it."""
        with closing(sqlite3.connect(f"file:{self.pen.root}/state.db?mode=ro", uri=True)) as rows:
            select = "SELECT COUNT(*) FROM tasks WHERE request = ?"
            return int(rows.execute(select, (request,)).fetchone()[0])

    def cancel_until(self, id: str, *until: str) -> None:
        """Again, unless it was done before the hub died."""
        while True:
            try:
                self.desk.cancel(id)
                return
            except BullpenError as error:
                if error.kind is not Kind.UNAVAILABLE:
                    raise
            if patiently(lambda: self.desk.task(id))["state"] in until:
                return

    def insist(self, id: str, verb: str, **body: Any) -> None:
        """Asked until it is answered, and done once."""
        asked = {**body, "request": uuid.uuid4().hex}
        patiently(lambda: self.pen.client().post("task", id, verb, body=asked, again=True))

    def assert_over(self, id: str, name: str, state: str, *journal: str) -> dict[str, Any]:
        """Over, once, and nothing of it is left but its history."""
        found = patiently(lambda: self.desk.over(id))
        assert found["state"] == state, (found, self.desk.debug(id))
        assert self.counting.finals()[id] == 1
        assert self.counting.journal.of(name) == list(journal)
        self.counting.assert_tidy()
        wait_until(lambda: "locked" not in git(self.repo, "worktree", "list", "--porcelain"))
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashing]:
    place = tmp_path_factory.mktemp("crash")
    with made_desk(place) as desk:
        config = desk.pen.home.config_file
        config.write_text(f"{config.read_text()}workdirs: [{place}]\n")
        crashing = Crashing(desk, place)
        desk.pen.start()
        crashing.counting.counter("amy", "amy")
        crashing.counting.counter("wally", "wally", walls=True, history_limit=KEPT)
        for name in ("amy", "wally"):
            desk.wait_ready(name)
        yield crashing


@pytest.fixture
def crashing(made: Crashing, monkeypatch: pytest.MonkeyPatch) -> Crashing:
    """One home for all of them: what one death leaves is the next one's beginning."""
    monkeypatch.setenv("PYTHONPATH", str(made.windows.place))
    if not made.repo.exists():
        make_repo(made.repo)
    made.pen.start()
    made.counting.assert_tidy()
    return made


def fresh() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"


@pytest.mark.few(1)
@pytest.mark.parametrize("spec", GIVING.values(), ids=GIVING)
def test_t11_given_task_whose_hub_is_killed_is_done_once(crashing: Crashing, spec: str) -> None:
    name = fresh()
    body = crashing.body(name)
    with crashing.windows.death(spec, 60):
        id = crashing.take("agents", "amy", "task", body=body)
    assert crashing.asked(body["request"]) == 1
    found = crashing.assert_over(id, name, "completed", "start", "end")
    assert found["output"] == f"done {name}"
    assert crashing.desk.moves(id) == ["queued", "working", "completed"]


@pytest.mark.storm
@pytest.mark.parametrize("window", WALLED)
def test_t11_task_behind_walls_whose_hub_is_killed_is_done_once(
    crashing: Crashing, window: str
) -> None:
    name = fresh()
    with crashing.windows.death(GIVING[window], 30):
        id = crashing.take("agents", "wally", "task", body=crashing.body(name))
    crashing.assert_over(id, name, "completed", "start", "end")


@pytest.mark.storm
def test_t10_history_whose_hub_is_killed_keeps_no_files_of_what_it_forgot(
    crashing: Crashing,
) -> None:
    for _ in range(KEPT):
        crashing.desk.done(crashing.take("agents", "wally", "task", body=crashing.body(fresh())))
        crashing.counting.assert_tidy()  # or it would be the end of this one that the hub dies of
    name = fresh()
    with crashing.windows.death(GIVING["old ones forgotten"], 30):
        id = crashing.take("agents", "wally", "task", body=crashing.body(name))
    crashing.assert_over(id, name, "completed", "start", "end")
    items = crashing.pen.client().get("agents", "wally", "history")["items"]
    assert len(items) == KEPT
    kept = {path.name for path in (crashing.pen.session("wally") / "tasks").iterdir()}
    assert kept == {item["task_id"] for item in items}


@pytest.mark.storm
@pytest.mark.parametrize("spec", OFFERING.values(), ids=OFFERING)
def test_t11_offered_task_whose_hub_is_killed_is_done_once(crashing: Crashing, spec: str) -> None:
    name = fresh()
    body = crashing.body(name, role="amy")
    with crashing.windows.death(spec, 60):
        id = crashing.take("tasks", body=body)
    assert crashing.asked(body["request"]) == 1
    found = crashing.assert_over(id, name, "completed", "start", "end")
    assert found["agent"] == "amy"


@pytest.mark.storm
@pytest.mark.parametrize("spec", CANCELLING.values(), ids=CANCELLING)
def test_t11_cancel_whose_hub_is_killed_happens(crashing: Crashing, spec: str) -> None:
    name = fresh()
    id = crashing.take("agents", "amy", "task", body=crashing.body(name, "hold"))
    wait_until(lambda: crashing.desk.task(id)["output"] == f"at {name}")
    with crashing.windows.death(spec, 60):
        crashing.cancel_until(id, "cancelling", "cancelled")
    found = crashing.assert_over(id, name, "cancelled", "start", "ended")
    assert found["output"] == f"at {name}"


@pytest.mark.few(2)
@pytest.mark.parametrize("spec", CANCELLING_QUEUED.values(), ids=CANCELLING_QUEUED)
def test_t11_cancel_in_the_queue_whose_hub_is_killed_happens(crashing: Crashing, spec: str) -> None:
    name = fresh()
    body = crashing.body(name, labels={"nobody": "has"})
    id = crashing.take("tasks", body=body)
    with crashing.windows.death(spec):
        crashing.cancel_until(id, *FINAL)
        patiently(lambda: crashing.pen.client().get("tasks"))
    crashing.assert_over(id, name, "cancelled")


@pytest.mark.storm
@pytest.mark.parametrize("spec", TIMING_OUT.values(), ids=TIMING_OUT)
def test_t7_time_out_whose_hub_is_killed_is_one(crashing: Crashing, spec: str) -> None:
    name = fresh()
    # Time enough for the program to begin, on a busy machine.
    body = crashing.body(name, "hold", timeout_seconds=12.0)
    id = crashing.take("agents", "amy", "task", body=body)
    wait_until(lambda: crashing.desk.task(id)["output"] == f"at {name}")
    with crashing.windows.death(spec, 60):
        pass
    found = crashing.assert_over(id, name, "failed", "start", "ended")
    assert found["error"]["type"] == "timeout"
    assert found["output"] == f"at {name}"


def test_t7_run_that_cannot_be_ended_at_its_time_is_ended_later(crashing: Crashing) -> None:
    name = fresh()
    with crashing.windows.failure(TIMING_OUT["about to tell it"]):
        body = crashing.body(name, "hold", timeout_seconds=12.0)
        id = crashing.take("agents", "amy", "task", body=body)
    assert crashing.assert_over(id, name, "failed", "start", "ended")["error"]["type"] == "timeout"


@pytest.mark.few(1)
@pytest.mark.parametrize("spec", CONTINUING.values(), ids=CONTINUING)
def test_t5_continued_task_whose_hub_is_killed_goes_on_once(crashing: Crashing, spec: str) -> None:
    first, second = fresh(), fresh()
    id = crashing.take("agents", "amy", "task", body=crashing.body(first, keep_open=True))
    crashing.desk.wait(id, "idle")
    prompt = f"[[count {second} 0.05]]"
    with crashing.windows.death(spec, 60):
        crashing.insist(id, "continue", prompt=prompt)
    wait_until(lambda: patiently(lambda: crashing.desk.task(id))["output"] == f"done {second}")
    assert crashing.desk.wait(id, "idle")["turns"] == 2
    assert crashing.counting.finals()[id] == 0
    assert crashing.desk.status("amy")["current_task"]["id"] == id
    crashing.insist(id, "end")
    assert crashing.counting.journal.of(first) == ["start", "end"]
    crashing.assert_over(id, second, "completed", "start", "end")


@pytest.mark.few(2)
@pytest.mark.parametrize("spec", CLOSING.values(), ids=CLOSING)
def test_t5_ended_task_whose_hub_is_killed_is_over_once(crashing: Crashing, spec: str) -> None:
    name = fresh()
    id = crashing.take("agents", "amy", "task", body=crashing.body(name, keep_open=True))
    crashing.desk.wait(id, "idle")
    with crashing.windows.death(spec):
        crashing.insist(id, "end")
    crashing.assert_over(id, name, "completed", "start", "end")


@pytest.mark.storm
@pytest.mark.parametrize(
    ("words", "spec", "said", "moves"),
    [
        ("continue", CONTINUING["not answered"], "done {more}", ["working", "idle"]),
        ("end", CLOSING["not answered"], "task {id} is completed", ["completed"]),
        ("cancel", CANCELLING["not answered"], "task {id} is cancelled", ["cancelled"]),
    ],
    ids=["continue", "end", "cancel"],
)
def test_t13_command_whose_hub_is_killed_before_it_answers_is_done_once(
    crashing: Crashing, words: str, spec: str, said: str, moves: list[str]
) -> None:
    first, more = fresh(), fresh()
    id = crashing.take("agents", "amy", "task", body=crashing.body(first, keep_open=True))
    crashing.desk.wait(id, "idle")
    before = crashing.desk.moves(id)
    prompt = [f"[[count {more} 0.05]]"] if words == "continue" else []
    with crashing.windows.death(spec):
        ran = subprocess.run(
            [BULLPEN, "task", words, id, *prompt],
            env={**crashing.pen.env, "BULLPEN_DIR": str(crashing.pen.root)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert (ran.returncode, ran.stdout) == (0, f"{said.format(id=id, more=more)}\n"), ran.stderr
    assert crashing.desk.moves(id) == [*before, *moves]
    assert crashing.counting.journal.of(more) == (["start", "end"] if prompt else [])
    if prompt:
        crashing.insist(id, "end")


@pytest.mark.storm
@pytest.mark.parametrize("words", [("agent", "stop", "amy"), ("shutdown", "--agents")])
def test_f3_command_whose_hub_is_killed_before_it_answers_has_stopped_the_agent(
    crashing: Crashing, words: tuple[str, ...]
) -> None:
    with crashing.windows.death(TOLD_TO_LEAVE):
        ran = crashing.pen.cli(*words)
    assert (ran.code, ran.err) == (0, ""), ran
    assert not crashing.pen.agents()["amy"]["running"]
    for name in ("amy", "wally"):
        crashing.pen.cli("agent", "start", name)
        crashing.desk.wait_ready(name)


@pytest.mark.storm
@pytest.mark.parametrize("spec", LOADING.values(), ids=LOADING)
def test_t11_hub_killed_while_it_takes_up_tasks_loses_none(crashing: Crashing, spec: str) -> None:
    running, waiting = fresh(), fresh()
    first = crashing.take("agents", "amy", "task", body=crashing.body(running, "hold"))
    second = crashing.take("tasks", body=crashing.body(waiting, role="amy"))
    wait_until(lambda: crashing.counting.journal.of(running) == ["start"])
    crashing.pen.kill_hub()
    with crashing.windows.death(spec):
        patiently(lambda: crashing.pen.client().get("tasks"))
    crashing.counting.journal.release(running)
    crashing.desk.over(first)
    crashing.assert_over(second, waiting, "completed", "start", "end")
    crashing.assert_over(first, running, "completed", "start", "end")


def start_paused(crashing: Crashing, spec: str) -> None:
    """A hub that stands still there until all its agents could take tasks, and then some: what
    it does not know yet it must not give to them."""
    moves = len(crashing.pen.events("", "task.state"))
    with crashing.windows.pause(spec):
        before = len(crashing.pen.logged("takes tasks"))
        held_up = crashing.counting.journal.directory / "starting"
        held_up.touch()
        starting = threading.Thread(target=crashing.pen.start)
        starting.start()
        crashing.windows.wait_hit(spec)
        held_up.unlink()
        wait_until(lambda: len(crashing.pen.logged("takes tasks")) == before + 2)
        quiet_for(0.5)
        assert len(crashing.pen.events("", "task.state")) == moves
    starting.join(60)
    assert not starting.is_alive()


@pytest.mark.storm
def test_t11_agents_ready_before_all_tasks_are_taken_up_get_none_twice(crashing: Crashing) -> None:
    name = fresh()
    # Not right before it is given out: agents that get ready look for tasks, too.
    with crashing.windows.death(OFFERING["row written"]), pytest.raises(wire.HubGone):
        crashing.pen.ask("POST", "/tasks", crashing.body(name, "0.5", role="amy"))
    start_paused(crashing, SWEEPING)
    id = crashing.pen.client().get("history")["items"][0]["task_id"]
    crashing.assert_over(id, name, "completed", "start", "end")
    assert crashing.desk.moves(id) == ["queued", "queued", "working", "completed"]


@pytest.mark.storm
def test_t11_agents_ready_before_all_tasks_are_taken_up_get_one_each(crashing: Crashing) -> None:
    first, waiting, urgent = fresh(), fresh(), fresh()
    done = [crashing.take("agents", "amy", "task", body=crashing.body(first, "hold"))]
    done.append(crashing.take("tasks", body=crashing.body(waiting, role="amy")))
    body = crashing.body(urgent, "hold", role="amy", priority=1)
    done.append(crashing.take("tasks", body=body))
    crashing.counting.journal.release(first)
    wait_until(lambda: crashing.counting.journal.of(urgent) == ["start"])
    crashing.desk.over(done[0])
    crashing.pen.kill_hub()
    start_paused(crashing, SECOND_TASK)
    crashing.counting.journal.release(urgent)
    for id in done:
        crashing.desk.done(id)
    crashing.assert_over(done[2], urgent, "completed", "start", "end")
    crashing.assert_over(done[1], waiting, "completed", "start", "end")


def test_t1_a_task_given_when_the_last_is_over_waits_until_that_has_let_go(
    crashing: Crashing,
) -> None:
    first, second = fresh(), fresh()
    with ThreadPoolExecutor(1) as pool:
        with crashing.windows.pause(CONCLUDING):
            crashing.desk.done(crashing.take("agents", "amy", "task", body=crashing.body(first)))
            crashing.windows.wait_hit(CONCLUDING)
            body = crashing.body(second)
            given = pool.submit(crashing.take, "agents", "amy", "task", body=body)
            quiet_for(0.5)
            assert not given.done()  # not refused either
        crashing.assert_over(given.result(60), second, "completed", "start", "end")


@pytest.mark.storm
@pytest.mark.parametrize("spec", RETRYING.values(), ids=RETRYING)
def test_t11_lost_run_whose_hub_is_killed_too_is_tried_again_once(
    crashing: Crashing, spec: str
) -> None:
    name = fresh()
    id = crashing.take("agents", "amy", "task", body=crashing.body(name, "hold"))
    wait_until(lambda: crashing.counting.journal.of(name) == ["start"])
    with crashing.windows.death(spec, 60):
        crashing.counting.kill_holder(id, 1)
        crashing.counting.journal.release(name)
    # What the killed one left: the locks of its task and of its agent.
    story = ("start", "stale", "stale", "start", "end")
    found = crashing.assert_over(id, name, "completed", *story)
    assert [run["fault"] for run in found["runs"]] == ["lost", ""]


@pytest.mark.storm
@pytest.mark.parametrize("spec", TELLING.values(), ids=TELLING)
def test_t6_message_in_front_of_a_prompt_is_not_lost_with_the_hub(
    crashing: Crashing, spec: str
) -> None:
    name, text = fresh(), f"mind {fresh()}"
    crashing.pen.client().post("agents", "amy", "messages", body={"text": text})
    with crashing.windows.death(spec, 60):
        id = crashing.take("agents", "amy", "task", body=crashing.body(name))
    crashing.assert_over(id, name, "completed", "start", "end")
    run = crashing.pen.session("amy") / "tasks" / id / "1"
    assert (run / "prompt.json").read_text().count(text) == 1

"""A scheduler as a real process, with a real hub and agents that work (D1, D8)."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.client.directors import revoke_director
from bullpen.client.hub import Hub
from bullpen.component import ask as component_ask
from bullpen.directors import process
from bullpen.directors.loop import Loop
from bullpen.directors.scheduler import rules
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.ledger import GiveTask, SchedulerAction
from bullpen.directors.scheduler.rules import SchedulerRules
from bullpen.directors.token import make_token, token_file
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from tests.directors import replay
from tests.directors.hub_world import BEGIN, HubWorld
from tests.directors.running import RunningDirector, made_scheduler
from tests.hub.http.http import ask
from tests.hub.pen import Pen, made_pen
from tests.hub.tasks.desk import Desk, made_desk
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TIDY = {"name": "tidy", "cron": "0 0 1 1 *", "prompt": "[[say tidied]]", "role": "amy"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path) as made:
        made.pen.start()
        yield made


def last_state(director: RunningDirector) -> str:
    entries = director.ask("GET", "/schedule")["schedule"]
    return str((entries[0]["last"] or {"state": ""})["state"])


def test_d1_a_scheduled_task_is_given_done_and_recorded(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    with made_scheduler(desk.pen, TIDY) as director:
        ran = director.cli("schedule", "run", "tidy")
        assert ran.code == 0, ran
        wait_until(lambda: last_state(director) == "completed")
        rows = director.ask("GET", "/history")["items"]
        assert [(row["state"], row["agent"]) for row in rows] == [("completed", "amy")]
        task = desk.pen.client().get("task", rows[0]["task_id"])
        assert (task["director"], task["output"]) == ("nightly", "tidied")
        assert director.ask("GET", "/tasks") == {"tasks": [], "problems": []}
        assert [one["name"] for one in director.ask("GET", "/agents")["agents"]] == ["amy"]
        with pytest.raises(BullpenError, match="limit is a number from 1 to 100"):
            director.ask("GET", "/history?limit=101")
        # Its token is its own, and is no more when it is stopped.
        token, pid = director.token, director.pid
        assert token != desk.token
        port = desk.pen.client().get("status")["port"]
        assert ask(port, "GET", "/tasks", token=token).status == 200
        assert ask(port, "GET", "/agents", token=token).status == 403
        assert "idle" in director.cli("director", "list").out
        ran = director.cli("director", "stop", "nightly")
        assert (ran.code, ran.out) == (0, "nightly stopped\n")
        assert not alive(pid)
        assert ask(port, "GET", "/tasks", token=token).status == 401
        assert "stopped" in director.cli("director", "list").out


@pytest.mark.storm
def test_d1_a_killed_scheduler_takes_up_what_it_gave(desk: Desk) -> None:
    desk.agent("bob", walls=False)  # there is a hub with an agent, but nobody of that role
    with made_scheduler(desk.pen, TIDY) as director:
        director.ask("POST", "/schedule/task/tidy/run")
        wait_until(lambda: director.ask("GET", "/tasks")["tasks"][0]["state"] == "given")
        before = director.pid
        director.kill()

        def rows() -> list[tuple[str, int]]:
            listed = json.loads(director.cli("director", "list", "--json").out)["directors"]
            return [(row["state"], row["restarts"]) for row in listed]

        wait_until(lambda: rows() == [("working", 1)])  # its supervisor has started it again
        assert director.pid != before
        desk.agent("amy", walls=False)
        wait_until(lambda: last_state(director) == "completed")
        history = desk.pen.client().get("history")
        assert [row["state"] for row in history["items"]] == ["completed"]


@pytest.fixture(scope="module")
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.mark.storm
def test_d1_changes_of_the_file_and_of_the_api_count_at_once(pen: Pen) -> None:
    with made_scheduler(pen, TIDY, name="edited") as director:

        def names() -> list[str]:
            return [one["name"] for one in director.ask("GET", "/schedule")["schedule"]]

        assert names() == ["tidy"]
        # In one step each: it looks at its file by itself, too.
        write_atomically(director.file, director.file.read_text().replace('"tidy"', '"neat"'))
        assert names() == ["neat"]
        before = director.file.read_text()
        write_atomically(director.file, "type: scheduler\nschedule: 5\n")
        assert "line 2: schedule" in director.ask("GET", "/schedule")["problem"]
        assert names() == ["neat"]
        log = component_ask.get_status(pen.home.component_socket(director.pid)).log
        assert [entry.level for entry in log if "the file has errors" in entry.message] == ["error"]
        write_atomically(director.file, before)
        added = director.ask(
            "POST", "/schedule/task", {"name": "new", "cron": "@daily", "prompt": "x"}
        )
        assert len(added["next_runs"]) == 3
        assert names() == ["neat", "new"]
        director.ask("DELETE", "/schedule/task/neat")
        assert names() == ["new"]
        director.ask("PUT", "/schedule", {"schedule": [TIDY]})
        assert names() == ["tidy"]
        assert "tidy" in director.file.read_text()
        for method, path, body, message in (
            ("POST", "/schedule/task", {"name": "x", "cron": "@every 1m", "prompt": "x"}, "@every"),
            ("POST", "/schedule/task", TIDY, "there already"),
            ("PUT", "/schedule", {"schedule": "x"}, "list of entries"),
            ("DELETE", "/schedule/task/nope", None, "nothing in the schedule"),
            ("POST", "/schedule/task/nope/run", None, "nothing in the schedule"),
        ):
            with pytest.raises(BullpenError, match=message):
                director.ask(method, path, body)
        assert names() == ["tidy"]


@pytest.mark.storm
def test_a_director_runs_once(pen: Pen) -> None:
    with made_scheduler(pen, TIDY, name="once") as director:
        pid = director.pid
        ran = director.cli("director", "start", "once")
        assert (ran.code, ran.out) == (0, "once runs already\n")
        assert director.pid == pid
        ran = director.cli("director", "restart", "once")
        assert ran.code == 0
        assert director.pid != pid


@pytest.mark.storm
def test_d8_a_revoked_token_is_said_once_and_mended_by_a_restart(pen: Pen) -> None:
    entry = {**TIDY, "role": "nobody", "overlap": "allow"}
    with made_scheduler(pen, entry, name="revoked") as director:
        Hub(pen.home).do(revoke_director("revoked"))
        for _ in range(2):
            director.ask("POST", "/schedule/task/tidy/run")
        wait_until(lambda: len(director.ask("GET", "/tasks")["problems"]) == 2)
        problems = director.ask("GET", "/tasks")["problems"]
        assert {one["verdict"] for one in problems} == {"person"}
        log = component_ask.get_status(pen.home.component_socket(director.pid)).log
        said = [entry.model_dump() for entry in log if entry.message == "needs a person"]
        assert [one["hint"] for one in said] == ["bullpen director restart revoked"] * 2
        assert director.cli("director", "restart", "revoked").code == 0

        def states() -> list[str]:
            return [one["state"] for one in director.ask("GET", "/tasks")["tasks"]]

        wait_until(lambda: states() == ["given", "given"])
        tasks = [one for one in pen.client().get("tasks")["tasks"] if one["director"] == "revoked"]
        assert len(tasks) == 2


def test_d8_without_its_token_a_director_does_not_start(pen: Pen) -> None:
    (pen.home.directors / "open.yaml").write_text("type: scheduler\n")
    make_token(pen.home, "open")
    token_file(pen.home, "open").chmod(0o644)
    assert process.run_director(pen.home, "open") == 6
    token_file(pen.home, "open").unlink()
    assert process.run_director(pen.home, "open") == 3


# ── killed at every step, against a real hub ──


class AbsentWorld(HubWorld):
    """The entry is for an agent that does not run, and waits ten minutes for it."""

    def __init__(self, pen: Pen) -> None:
        super().__init__(pen)
        fields = {"name": "tidy", "cron": "0 * * * *", "prompt": "Tidy.", "agent": "absent"}
        self.entries = {"tidy": Entry.model_validate({**fields, "timeout": "10m"})}

    def begin(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        """A director that has tried to give the task at its time."""
        self.make(directory)
        loop = self.loop(directory)
        asyncio.run(loop.step())
        self.step(directory, loop, BEGIN + 1)
        return loop

    def step(self, directory: Path, loop: Loop[Any, Any, Any, Any], now: float) -> None:
        self._set(directory, now)
        asyncio.run(loop.step())

    def rows(self, loop: Loop[Any, Any, Any, Any]) -> list[tuple[str, str]]:
        return [(row.state, row.reason) for row in loop.memory.history]


def test_d1_what_could_not_be_given_in_its_time_is_never_given(pen: Pen, tmp_path: Path) -> None:
    world = AbsentWorld(pen)
    loop = world.begin(tmp_path)
    assert [one.verdict for one in loop.troubles.values()] == ["later"]
    world.step(tmp_path, loop, BEGIN + 300)
    assert (len(loop.memory.pending), world.rows(loop)) == (1, [])  # its time is not over
    world.step(tmp_path, loop, BEGIN + 700)
    [(state, reason)] = world.rows(loop)
    assert state == "timeout"
    assert reason.startswith("it could not be given within 10m: no agent called absent")
    assert (loop.memory.pending, loop._checkpoint.intents, loop.troubles) == ((), {}, {})


def test_d1_what_came_due_while_the_hub_was_away_says_so_or_is_given_when_it_is_back(
    tmp_path: Path,
) -> None:
    with made_pen() as own:
        own.start()
        world = HubWorld(own)
        world.entries = {"tidy": world.entries["tidy"].model_copy(update={"overlap": "allow"})}
        world.make(tmp_path)
        loop = world.loop(tmp_path)
        asyncio.run(loop.step())
        own.kill_hub()
        moments = [*(BEGIN + 2.0**power for power in range(12)), BEGIN + 3601, BEGIN + 4096]
        for moment in moments:
            world._set(tmp_path, moment)
            asyncio.run(loop.step())
        assert set(loop.refusals.values()) == {"the hub is down"}
        assert max(one.wait_seconds for one in loop.troubles.values()) == 900
        short = world.entries["tidy"].model_copy(update={"timeout": timedelta(minutes=40)})
        world.entries = {"tidy": short}
        own.start()
        asyncio.run(loop.step())
        assert (world._tasks(tmp_path), loop.memory.history) == ([], ())  # they wait
        asyncio.run(loop.hub_is_back())
        asyncio.run(loop.step())
        rows = [(row.id, row.state, row.reason) for row in loop.memory.history]
        first, second = (f"tidy@2027-01-15T{hour:02}:00:00Z" for hour in (8, 9))
        why = "it could not be given within 40m: the hub is down"
        assert rows == [(first, "timeout", why)]
        assert list(loop.memory.given) == [second]
        assert len(world._tasks(tmp_path)) == 1


def test_d1_a_scheduler_gives_what_waited_for_the_hub_as_soon_as_that_answers(pen: Pen) -> None:
    now, id = time.time(), "tidy@2026-01-01T00:00:00Z"
    pending = {"id": id, "name": "tidy", "due": now, "noted": now}
    trouble = {"verdict": "later", "reason": "the hub is down", "at": now, "wait_seconds": 900}
    checkpoint = {
        "memory": {"pending": [pending]},
        "troubles": {id: {**trouble, "failures": 9, "is_hub_away": True}},
    }
    directory = pen.home.directors / "late"
    directory.mkdir(mode=0o700, parents=True)
    (directory / "memory.json").write_text(json.dumps(checkpoint))
    with made_scheduler(pen, TIDY, name="late") as director:
        wait_until(lambda: director.ask("GET", "/tasks")["tasks"][0]["state"] == "given")
        assert director.ask("GET", "/tasks")["problems"] == []


def test_d1_what_waits_for_the_hub_says_so_in_the_list(tmp_path: Path) -> None:
    with made_pen() as own:
        own.start()
        with made_scheduler(own, TIDY) as director:
            own.kill_hub()
            director.ask("POST", "/schedule/task/tidy/run")
            wait_until(lambda: bool(director.ask("GET", "/schedule")["schedule"][0]["waits_for"]))
            assert "waits: the hub is down" in director.cli("schedule", "list").out


def test_d1_what_could_not_be_given_goes_with_its_entry(pen: Pen, tmp_path: Path) -> None:
    world = AbsentWorld(pen)
    loop = world.begin(tmp_path)
    world.entries = {}
    world.step(tmp_path, loop, BEGIN + 300)
    assert world.rows(loop) == [("skipped", "it is in the schedule no more")]
    assert (loop._checkpoint.intents, loop.troubles) == ({}, {})


def test_d1_a_task_whose_answer_was_lost_is_found_after_its_time(
    pen: Pen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AbsentWorld(pen)
    world.entries = {
        "tidy": world.entries["tidy"].model_copy(update={"agent": None, "role": "nobody"})
    }
    act = SchedulerRules.act

    async def lose_answer(self: SchedulerRules, action: SchedulerAction) -> str:
        outcome = await act(self, action)
        if isinstance(action, GiveTask):
            raise BullpenError("the hub is away", kind=Kind.UNAVAILABLE)
        return outcome

    with monkeypatch.context() as losing:
        losing.setattr(SchedulerRules, "act", lose_answer)
        loop = world.begin(tmp_path)
    assert len(loop._checkpoint.intents) == 1
    world.step(tmp_path, loop, BEGIN + 700)  # found, and cancelled for it waited too long
    world.step(tmp_path, loop, BEGIN + 701)
    assert world.rows(loop) == [("timeout", "no agent was free within 10m")]
    assert [task["state"] for task in world._tasks(tmp_path)] == ["cancelled"]


@pytest.mark.storm
def test_d1_a_scheduler_killed_while_it_gives_a_task_gives_one(pen: Pen, tmp_path: Path) -> None:
    world = HubWorld(pen, changes=1)
    whole = replay.undisturbed(world, tmp_path / "whole")
    worlds = dict(replay.killed(world, tmp_path / "killed", only=1))
    assert len(worlds) > 10
    assert {name: each for name, each in worlds.items() if each != whole} == {}


@pytest.mark.storm
def test_d1_without_its_key_a_killed_scheduler_gives_two(
    pen: Pen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "request_key", lambda *_: uuid.uuid4().hex)
    world = HubWorld(pen, changes=1)
    whole = replay.undisturbed(world, tmp_path / "whole")
    worlds = replay.killed(world, tmp_path / "killed", only=1)
    assert any(each != whole for _, each in worlds)


@pytest.mark.storm
def test_d1_a_scheduler_killed_at_any_step_gives_each_task_once(tmp_path: Path) -> None:
    with made_pen() as pen:
        pen.start()
        world = HubWorld(pen)
        whole = replay.undisturbed(world, tmp_path / "whole")
        tasks, rows, _, given = whole  # type: ignore[misc]
        assert (len(tasks), len(rows), len(given)) == (2, 1, 1)
        worlds = dict(replay.killed(world, tmp_path / "killed"))
        assert len(worlds) > 30
        assert {name: each for name, each in worlds.items() if each != whole} == {}

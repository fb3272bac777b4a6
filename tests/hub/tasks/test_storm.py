"""Tasks while hubs are killed with -9, again and again: none lost, none done twice."""

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.home.paths import HUB
from bullpen.hot import wire
from tests.hub.pen import Pen, factory_pid
from tests.hub.tasks.counters import FINAL, Counting, patiently
from tests.hub.tasks.desk import made_desk
from tests.processes import kill
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

TASKS, AGENTS, WALLED = 300, 20, 4
KILLS = 10
FIRST, MORE = 60, 24  # tasks given at the beginning, and whenever none waits any more
STORM_SECONDS = 600.0  # a bound, for a machine that is busy with others


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    with made_desk(tmp_path) as desk:
        yield Counting(desk, tmp_path)


class Customers:
    """Those who give tasks to the queue, and cancel some; what they were answered."""

    def __init__(self, pen: Pen, chance: random.Random) -> None:
        self.pen = pen
        self.chance = chance
        self.taken: dict[int, str] = {}
        self.cancelled: set[int] = set()
        self.given = 0
        self._wanted: queue.Queue[int | None] = queue.Queue()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def want(self, many: int) -> None:
        for _ in range(many):
            self._wanted.put(self.given)
            self.given += 1

    def want_more(self) -> None:
        if not self.are_asking:
            self.want(MORE)

    @property
    def are_asking(self) -> bool:
        return len(self.taken) < self.given

    def end(self) -> None:
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        try:
            while (number := self._wanted.get()) is not None:
                self._give(number)
        except BaseException as error:  # noqa: BLE001 - raised again at the end
            self._errors.append(error)

    def _give(self, number: int) -> None:
        seconds = 0.1 + 1.5 * self.chance.random()
        body = {
            "prompt": f"[[count n{number} {seconds:.2f}]]",
            "request": uuid.uuid4().hex,
            "env": {"TASK_WORD": f"word-of-{number}"},
            "priority": self.chance.randint(-1, 1),
            "role": "walled" if number % 6 == 0 else "open",
        }
        found = patiently(lambda: self.pen.client().post("tasks", body=body, again=True))
        self.taken[number] = found["task_id"]
        if number % 15 == 7:
            with contextlib.suppress(BullpenError):  # it may be over
                id = found["task_id"]
                patiently(lambda: self.pen.client().post("task", id, "cancel", again=True))
                self.cancelled.add(number)


@pytest.mark.storm
def test_t11_storm_of_kills_of_the_hub_loses_no_task_and_does_none_twice(
    counting: Counting,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pen, began = counting.pen, time.monotonic()
    for number in range(AGENTS):
        walls = number < WALLED
        counting.counter(f"a{number}", "walled" if walls else "open", walls=walls)
    ready = time.monotonic() - began
    customers = Customers(pen, random.Random(seed))
    customers.want(FIRST)
    hits: Counter[str] = Counter()
    killed: list[int] = []

    def is_amid() -> bool:
        found = counting.seldom()
        if "queued" not in found:
            customers.want_more()
        return {"queued", "working"} <= found

    while len(killed) < KILLS and time.monotonic() < began + STORM_SECONDS:
        wait_until(lambda: pen.answers() and pen.pid not in killed)
        quiet_for(customers.chance.random())
        wait_until(is_amid)
        was_asked = customers.are_asking
        pid = pen.pid
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)
        found = counting.states()
        hits.update(state for state in found if state not in FINAL)
        hits["asked"] += was_asked
        customers.want(MORE)
        pen.start()
    stormy = time.monotonic() - began
    customers.want(TASKS - customers.given)
    customers.end()
    wait_until(lambda: counting.seldom() <= set(FINAL), STORM_SECONDS)
    took = time.monotonic() - began
    ended = counting.states()
    print(
        f"ready after {ready:.1f} s, {len(killed)} kills until {stormy:.1f} s, over at {took:.1f}"
    )
    print(f"at the moments of the kills {dict(hits)}; in the end {dict(ended)}")

    assert len(set(killed)) == len(killed) >= KILLS
    assert min(hits["queued"], hits["working"]) >= KILLS / 2, hits
    counting.assert_tidy()
    ids = set(customers.taken.values())
    assert len(customers.taken) == len(ids) == customers.given >= TASKS
    assert counting.finals() == Counter(ids), "each ends once"
    starts, ends = counting.journal.counted("start"), counting.journal.counted("end")
    walled = 0
    for number, id in customers.taken.items():
        task, name = counting.desk.task(id), f"n{number}"
        if task["state"] == "cancelled":
            assert number % 15 == 7, task
            assert starts[name] <= 1
            continue
        assert task["state"] == "completed", (task, counting.desk.debug(id))
        assert task["output"] == f"done {name}"
        assert [run["number"] for run in task["runs"]] == [1], task
        assert (starts[name], ends[name]) == (1, 1), name
        walled += number % 6 == 0
    assert walled > customers.given / 10
    assert ended["completed"] > customers.given * 0.9


# ── others than the hub ──


def given(counting: Counting, name: str, how_long: str = "hold", agent: str = "amy") -> str:
    """A task that is at work."""
    id = counting.desk.give(agent, f"[[count {name} {how_long}]]", env={"WORD": f"word-of-{name}"})
    wait_until(lambda: counting.journal.of(name) == ["start"])
    return id


@pytest.fixture
def amy(counting: Counting) -> Counting:
    """One agent."""
    counting.counter("amy", "amy")
    counting.desk.wait_ready("amy")
    return counting


@pytest.fixture(params=[False, True], ids=["open", "walled"])
def either(counting: Counting, request: pytest.FixtureRequest) -> Counting:
    """One agent, without walls and then behind them."""
    counting.counter("amy", "amy", walls=request.param)
    counting.desk.wait_ready("amy")
    return counting


@pytest.mark.storm
def test_t11_storm_of_kills_of_the_factory_loses_no_task(counting: Counting) -> None:
    names = [f"a{number}" for number in range(4)]
    for name in names:
        counting.counter(name, "open")
    for name in names:
        counting.desk.wait_ready(name)
    ids = []
    for number in range(40):
        body = {"prompt": f"[[count n{number} 0.1]]", "request": uuid.uuid4().hex}
        ids.append(counting.pen.client().post("tasks", body=body)["task_id"])
    killed = set()
    while len(killed) < 8 and len(counting.journal.lines("end")) < 36:
        pid = factory_pid(counting.pen)
        begun = len(counting.journal.lines("start"))
        if pid is not None and pid not in killed:
            kill(pid)
            killed.add(pid)
        wait_until(lambda: len(counting.journal.lines("start")) > begun)  # noqa: B023
    for id in ids:
        assert [run["fault"] for run in counting.desk.done(id)["runs"]] == [""]
    assert len(killed) >= 4
    assert counting.finals() == Counter(ids)
    assert set(counting.journal.counted("start").values()) == {1}
    counting.assert_tidy()


def test_t11_killed_holder_is_lost_and_tried_again(either: Counting) -> None:
    id = given(either, "n1")
    either.kill_holder(id, 1)
    wait_until(lambda: either.journal.counted("start")["n1"] == 2)
    either.journal.release("n1")
    found = either.desk.done(id)
    assert [run["fault"] for run in found["runs"]] == ["lost", ""]
    assert found["output"] == "done n1"
    assert either.desk.moves(id) == ["queued", "working", "working", "completed"]
    either.assert_tidy()


@pytest.mark.storm
def test_t11_hub_and_holder_killed_together_is_tried_again(either: Counting) -> None:
    id = given(either, "n1")
    either.pen.kill_hub()
    either.kill_holder_of("amy", id, 1, "n1")
    either.journal.release("n1")
    found = either.desk.done(id)
    assert [run["fault"] for run in found["runs"]] == ["lost", ""]
    assert either.journal.of("n1") == ["start", "stale", "stale", "start", "end"]
    assert either.finals()[id] == 1
    either.assert_tidy()


def test_t11_holder_killed_each_time_is_lost_in_the_end(counting: Counting) -> None:
    counting.counter("amy", "amy", max_retries=1)
    counting.desk.wait_ready("amy")
    id = given(counting, "n1")
    counting.kill_holder(id, 1)
    wait_until(lambda: counting.journal.counted("start")["n1"] == 2)
    counting.kill_holder(id, 2)
    found = counting.desk.over(id)
    assert (found["state"], found["error"]["type"]) == ("failed", "lost")
    assert counting.finals()[id] == 1
    wait_until(lambda: counting.desk.status("amy")["state"] == "idle")
    assert counting.desk.done(counting.desk.give("amy", "[[count n2 0]]"))["output"] == "done n2"


# ── the directory of sockets ──


def wipe(pen: Pen) -> None:
    """All that is there; those who listen do not notice."""
    for path in pen.home.socket(HUB).parent.iterdir():
        if path.is_socket():
            path.unlink()


@pytest.mark.storm
def test_t11_task_outlives_the_directory_of_sockets(amy: Counting) -> None:
    id = given(amy, "n1")
    hub = amy.pen.pid
    wipe(amy.pen)
    assert amy.desk.task(id)["state"] == "working"
    assert amy.pen.pid == hub
    amy.journal.release("n1")
    assert amy.desk.done(id)["output"] == "done n1"
    assert amy.desk.done(amy.desk.give("amy", "[[count n2 0]]"))["output"] == "done n2"
    assert amy.journal.of("n1") == ["start", "end"]
    amy.assert_tidy()


def test_t11_task_whose_socket_is_gone_is_cancelled(either: Counting) -> None:
    id = given(either, "n1")
    wipe(either.pen)
    either.pen.client().post("task", id, "cancel")
    assert either.desk.over(id)["state"] == "cancelled"
    assert either.journal.of("n1") == ["start", "ended"]
    either.assert_tidy()


@pytest.mark.storm
def test_t7_task_whose_socket_is_gone_times_out(amy: Counting) -> None:
    id = amy.desk.give("amy", "[[count n1 hold]]", timeout_seconds=10)
    wait_until(lambda: amy.journal.of("n1") == ["start"])
    wipe(amy.pen)
    found = amy.desk.over(id)
    assert (found["state"], found["error"]["type"]) == ("failed", "timeout")
    amy.assert_tidy()


@pytest.mark.storm
def test_t11_task_is_found_again_after_a_kill_without_sockets(amy: Counting) -> None:
    id = given(amy, "n1")
    factory = factory_pid(amy.pen)
    wipe(amy.pen)
    amy.pen.kill_hub()
    kill(factory)  # nobody can tell it to leave
    assert amy.desk.task(id)["state"] == "working"
    amy.journal.release("n1")
    assert amy.desk.done(id)["output"] == "done n1"
    assert amy.journal.of("n1") == ["start", "end"]
    assert [run["fault"] for run in amy.desk.task(id)["runs"]] == [""]
    amy.assert_tidy()


# ── hubs beside and after each other ──


@pytest.mark.storm
def test_t11_hubs_started_at_once_do_each_task_once(counting: Counting) -> None:
    pen = counting.pen
    for name in ("amy", "bob"):
        counting.counter(name, "open")
        counting.desk.wait_ready(name)
    ids = []
    for number in range(12):
        body = {"prompt": f"[[count n{number} 0.2]]", "request": uuid.uuid4().hex}
        ids.append(pen.client().post("tasks", body=body)["task_id"])
    for _ in range(2):
        wait_until(lambda: "working" in counting.states())
        pen.kill_hub()
        words = [sys.executable, "-m", "bullpen.hub.main"]
        env = {**pen.env, "BULLPEN_DIR": str(pen.root)}
        hubs = [
            subprocess.Popen(
                words, env=env, cwd=pen.root, stderr=subprocess.DEVNULL, start_new_session=True
            )
            for _ in range(2)
        ]
        wait_until(lambda: sum(hub.poll() is None for hub in hubs) == 1, 120)  # noqa: B023
        wait_until(pen.answers)
        assert pen.lock_holders() == {hub.pid for hub in hubs if hub.poll() is None}
    for id in ids:
        assert [run["fault"] for run in counting.desk.done(id)["runs"]] == [""]
    assert counting.finals() == Counter(ids)
    assert set(counting.journal.counted("start").values()) == {1}
    counting.assert_tidy()
    pen.kill_hub()
    for hub in hubs:
        hub.wait(60)


class Reader:
    """Follows the stream of one task, and resumes wherever it was cut off."""

    def __init__(self, pen: Pen, task: str) -> None:
        self.pen = pen
        self.target = f"/task/{task}/events"
        self.events: list[tuple[str, str, dict[str, Any]]] = []  # name, id, data
        self.cuts = 0
        self._after = ""
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for found, _, data in self.events if found == name]

    def join(self) -> None:
        self._thread.join(180)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        deadline = time.monotonic() + 180
        while not self.of("end") and time.monotonic() < deadline:
            with contextlib.suppress(wire.HubError, OSError):
                self._read()
            self.cuts += not self.of("end")

    def _read(self) -> None:
        headers = {"last-event-id": self._after} if self._after else {}
        path, rest = str(self.pen.home.socket(HUB)), b""
        with wire.stream(path, "GET", self.target, headers, timeout=20) as answer:
            assert answer.status == 200, answer.status
            for piece in answer:
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in fields:
            self._after = fields.get("id", self._after)
            data = json.loads(fields["data"])
            self.events.append((fields["event"], fields.get("id", ""), data))


@pytest.mark.storm
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_t8_hub_restarted_in_the_middle_of_tasks_loses_nothing(amy: Counting, how: str) -> None:
    amy.counter("bob", "bob")
    amy.desk.wait_ready("bob")
    id = given(amy, "n1", "talk")
    reader = Reader(amy.pen, id)
    ids = []
    hubs = {amy.pen.pid}
    for turn in range(2):
        for number in range(3):
            body = {
                "prompt": f"[[count n{turn}{number} 0.3]]",
                "role": "bob",
                "request": uuid.uuid4().hex,
            }
            ids.append(amy.pen.client().post("tasks", body=body)["task_id"])
        seen = len(reader.of("text"))
        wait_until(lambda: len(reader.of("text")) > seen + 10)  # noqa: B023
        if how == "restart":
            done = amy.pen.cli("hub", "restart")
            assert done.code == 0, done.err
        else:
            amy.pen.kill_hub()
            amy.pen.start()
        hubs.add(amy.pen.pid)
    assert len(hubs) == 3
    amy.journal.release("n1")
    reader.join()
    assert reader.cuts >= 2
    texts = [data["text"] for data in reader.of("text")]
    assert texts == ["at n1", *(f"n1 {number}" for number in range(1, len(texts)))]
    assert len(texts) > 30
    assert amy.desk.debug(id).rpartition('"text": "')[2].startswith(f'{texts[-1]}"')
    marks = [mark for _, mark, _ in reader.events if mark]
    assert len(marks) == len(set(marks))
    assert len(reader.of("end")) == 1
    assert reader.of("end")[0]["output"] == "done n1"
    for each in (id, *ids):
        assert [run["fault"] for run in amy.desk.done(each)["runs"]] == [""]
    assert amy.finals() == Counter([id, *ids])
    assert set(amy.journal.counted("start").values()) == {1}
    amy.assert_tidy()

"""Tasks while hubs are killed with -9, again and again: none lost, none done twice."""

import contextlib
import os
import queue
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from tests.conftest import wait_until
from tests.engines.team import made_team
from tests.hub.conftest import Pen
from tests.tasks.counters import FINAL, Counting, patiently

TASKS, AGENTS, WALLED = 300, 20, 4
KILLS = 10
FIRST, MORE = 60, 24  # tasks given at the beginning, and after each kill
EVERY_SECONDS = 2.0
STORM_SECONDS = 75.0  # on a machine that is busy with others


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    with made_team(tmp_path, "standin") as team:
        yield Counting(team, tmp_path)


class Customers:
    """Those who give tasks to the queue, and cancel some; what they were answered."""

    def __init__(self, pen: Pen, chance: random.Random) -> None:
        self.pen = pen
        self.chance = chance
        self.taken: dict[int, str] = {}
        self.cancelled: set[int] = set()
        self.asking = 0
        self._wanted: queue.Queue[int | None] = queue.Queue()
        self._errors: list[BaseException] = []
        self._given = 0
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def want(self, many: int) -> None:
        for _ in range(min(many, TASKS - self._given)):
            self._wanted.put(self._given)
            self._given += 1

    def end(self) -> None:
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join(90)
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
        seconds = 0.1 + 1.9 * self.chance.random()
        body = {
            "prompt": f"[[count n{number} {seconds:.2f}]]",
            "request": uuid.uuid4().hex,
            "env": {"TASK_WORD": f"word-of-{number}"},
            "priority": self.chance.randint(-1, 1),
            "role": "walled" if number % 6 == 0 else "open",
        }
        self.asking += 1
        found = patiently(lambda: self.pen.client().post("tasks", body=body, again=True))
        self.asking -= 1
        self.taken[number] = found["task_id"]
        if number % 15 == 7:
            with contextlib.suppress(BullpenError):  # it may be over
                id = found["task_id"]
                patiently(lambda: self.pen.client().post("task", id, "cancel", again=True))
                self.cancelled.add(number)


def test_t11_storm_of_kills_of_the_hub_loses_no_task_and_does_none_twice(
    counting: Counting,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pen, began = counting.pen, time.monotonic()
    for number in range(AGENTS):
        walls = number < WALLED
        counting.counter(f"a{number}", "walled" if walls else "open", walls=walls)
    customers = Customers(pen, random.Random(seed))
    customers.want(FIRST)
    hits: Counter[str] = Counter()
    killed: list[int] = []
    last = time.monotonic()
    while len(killed) < KILLS and time.monotonic() < began + STORM_SECONDS:
        wait_until(lambda: pen.answers() and pen.pid not in killed, 30)
        wait_until(lambda: time.monotonic() > last + EVERY_SECONDS, 10)  # noqa: B023
        # It takes a moment to find its agents and to give out what waits.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: {"queued", "working"} <= set(counting.states()), EVERY_SECONDS)
        was_asked = customers.asking > 0
        pid = pen.pid
        os.kill(pid, signal.SIGKILL)
        last = time.monotonic()
        killed.append(pid)
        found = counting.states()
        hits.update(state for state in found if state not in FINAL)
        hits["asked"] += was_asked
        customers.want(MORE)
        pen.start()
    customers.want(TASKS)
    customers.end()
    wait_until(lambda: sum(counting.states()[state] for state in FINAL) >= TASKS, 60)
    took = time.monotonic() - began
    ended = counting.states()
    print(f"{took:.1f} s, {len(killed)} kills, at those moments {dict(hits)}; {dict(ended)}")

    assert len(set(killed)) == len(killed) >= KILLS
    assert min(hits["queued"], hits["working"]) >= KILLS / 2, hits
    counting.assert_tidy()
    ids = set(customers.taken.values())
    assert len(customers.taken) == len(ids) == TASKS
    assert counting.finals() == Counter(ids), "each ends once"
    starts, ends = counting.journal.counted("start"), counting.journal.counted("end")
    walled = 0
    for number, id in customers.taken.items():
        task, name = counting.task(id), f"n{number}"
        if task["state"] == "cancelled":
            assert number % 15 == 7, task
            assert starts[name] <= 1
            continue
        assert task["state"] == "completed", (task, counting.debug(id))
        assert task["output"] == f"done {name}"
        assert [run["number"] for run in task["runs"]] == [1], task
        assert (starts[name], ends[name]) == (1, 1), name
        walled += number % 6 == 0
    assert walled > TASKS / 10
    assert ended["completed"] > TASKS * 0.9

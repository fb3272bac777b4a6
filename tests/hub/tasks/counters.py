"""A desk of counting programs that take tasks: what their journal and the database say of them."""

import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from tests.hub.tasks.counting import PROMPT, Journal
from tests.hub.tasks.desk import ROOT, Desk
from tests.processes import alive, children_of, kill
from tests.waiting import quiet_for, wait_until

FINAL = ("completed", "failed", "cancelled")
LOOK_SECONDS = 0.1
NOT_DRIVEN = "a task could not be driven"


class Counting:
    """A desk whose agents are the counting program, and its journal."""

    def __init__(self, desk: Desk, directory: Path) -> None:
        self.desk = desk
        self.pen = desk.pen
        self.journal = Journal(directory / "journal")
        self.failed = 0  # drivers, as far as they were looked at
        self.killed: set[str] = set()  # what a test killed leaves its locks behind
        program = self.journal.program(directory / "counting")
        self.pen.env["BULLPEN_CLAUDE_BIN"] = str(program)

    def counter(self, name: str, role: str, *, walls: bool = False, **file: Any) -> str:
        """An agent; a config directory of its own, so that none waits for another's lock."""
        box = {"enabled": walls, "read_write_paths": [str(self.journal.directory)]}
        box["read_only_paths"] = [str(ROOT), str(self.journal.directory.parent)]
        self.desk.role(role, sandbox=box, claude_config_dir="session")
        self.desk.write_file(name, role=role, **file)
        self.pen.client().post("agents", body=self.desk.launch_body(name))
        return name

    def finals(self) -> Counter[str]:
        """How many times each task came to an end, as the event log has it."""
        events = self.pen.events("", "task.state")
        return Counter(event["task"] for event in events if event["state"] in FINAL)

    def states(self) -> Counter[str]:
        """How many tasks are in each state, on disk."""
        path = self.pen.root / "state.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return Counter(row[0] for row in database.execute("SELECT state FROM tasks"))

    def seldom(self) -> set[str]:
        """The states that there are; for conditions that are asked for again and again, while
        others need the machine."""
        quiet_for(LOOK_SECONDS)
        return set(self.states())

    def kill_holder(self, task: str, run: int) -> None:
        """Of that run, with -9; its program goes with it."""
        found = self.desk.task(task)
        name = PROMPT.findall(found["prompt"])[-1][0]
        self.kill_holder_of(found["agent"], task, run, name)

    def kill_holder_of(self, agent: str, task: str, run: int, name: str) -> None:
        """The same without asking a hub."""
        place = self.pen.session(agent) / "tasks" / task / str(run)
        record = json.loads((place / "holder.json").read_text())
        self.killed.add(name)
        # Behind walls the child is only the wall: what is inside dies a moment after it.
        inside = [record["child"]]
        for pid in inside:
            inside += children_of(pid)
        kill(record["pid"])
        wait_until(lambda: not any(map(alive, inside)))

    def assert_tidy(self) -> None:
        """Nothing of any task is held any more."""
        kept = self.pen.root / "task-env"
        wait_until(lambda: not kept.is_dir() or not list(kept.iterdir()))
        wait_until(lambda: self.pen.client().get("tasks")["tasks"] == [])
        for name, agent in self.pen.agents().items():
            if agent["running"]:
                self.desk.wait_ready(name)
        failed = self.pen.logged(NOT_DRIVEN)
        new, self.failed = failed[self.failed :], len(failed)
        assert new == []
        odd = self.journal.lines("overlap", "stale")
        assert [
            line for line in odd if (line.what, line.name in self.killed) != ("stale", True)
        ] == []
        assert self.journal.overlapping() == []
        assert list(self.journal.directory.glob("*.lock")) == []


def patiently(ask: Callable[[], Any], seconds: float = 80.0) -> Any:
    """Ask until there is an answer: a hub that is away, or an agent that is starting, is none."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except BullpenError as error:
            if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                raise

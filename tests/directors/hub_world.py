"""A scheduler and a real hub as a world that `replay` kills the scheduler in."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.directors import admit_director
from bullpen.client.hub import Hub
from bullpen.directors.loop import Loop, checkpoint_type
from bullpen.directors.memory import MemoryFile
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.rules import SchedulerRules
from bullpen.directors.token import load_token, make_token
from bullpen.home.paths import Home
from tests.hub.pen import Pen

BEGIN = 1_800_000_000.0  # a whole hour


class HubWorld:
    """An hourly entry; nobody takes its tasks. Two hours pass, then a person cancels the task."""

    def __init__(self, pen: Pen, changes: int = 3) -> None:
        self.pen = pen
        hourly = {"name": "tidy", "cron": "0 * * * *", "prompt": "Tidy.", "role": "nobody"}
        entry = Entry.model_validate({**hourly, "overlap": "queue", "timeout": "9h"})
        self.entries = {"tidy": entry}
        self.changes: Sequence[Callable[[Path], None]] = (
            lambda directory: self._set(directory, BEGIN + 1),
            lambda directory: self._set(directory, BEGIN + 3601),
            self._cancel,
        )[:changes]

    def _name(self, directory: Path) -> str:
        return "w" + hashlib.sha256(str(directory).encode()).hexdigest()[:12]

    def _set(self, directory: Path, now: float) -> None:
        (directory / "clock").write_text(str(now))

    def _cancel(self, directory: Path) -> None:
        for task in self._tasks(directory):
            if task["state"] == "queued":
                self.pen.client().post("task", task["task_id"], "cancel")

    def _tasks(self, directory: Path) -> list[dict[str, Any]]:
        name = self._name(directory)
        rows: list[dict[str, Any]] = []
        for page in itertools.count(1):
            more = self.pen.client().get("history", limit=100, page=page)["items"]
            rows += [row for row in more if row["director"] == name]
            if len(more) < 100:
                return rows
        raise AssertionError

    def make(self, directory: Path) -> None:
        self._set(directory, BEGIN - 60)
        name = self._name(directory)
        Hub(self.pen.home).do(admit_director(name, make_token(self.pen.home, name)))

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        name = self._name(directory)

        def now() -> float:
            return float((directory / "clock").read_text())

        hub = AsyncHub(Home(self.pen.root), token=load_token(self.pen.home, name), start=False)
        own = SchedulerRules(name, hub, self._schedule, lambda: loop.refusals, now)
        file: MemoryFile[Any, Any] = MemoryFile(directory / "memory.json", checkpoint_type(own))
        loop: Loop[Any, Any, Any, Any] = Loop(own, file, tell=print, now=now)
        return loop

    def _schedule(self) -> tuple[dict[str, Entry], dict[str, str]]:
        return self.entries, dict.fromkeys(self.entries, "UTC")

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        return tried == 0 and not loop.troubles

    def picture(self, directory: Path) -> object:
        ledger = self.loop(directory).memory
        tasks = [(task["state"], task["prompt"]) for task in self._tasks(directory)]
        rows = [(row.id, row.state) for row in ledger.history]
        return tasks, rows, [one.id for one in ledger.pending], list(ledger.given)

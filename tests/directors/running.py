"""A director that runs: a process of its own, started by its command, against a real hub."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.cli.directors import _supervisable, ask_director, find_running
from bullpen.client.call import Call, read_fields
from bullpen.client.directors import admit_director
from bullpen.client.hub import Hub
from bullpen.directors.history import HistoryRow
from bullpen.directors.manager.goals import Goal, GoalRequest, Goals
from bullpen.directors.memory import FILE, directory_of
from bullpen.directors.token import load_token, make_token
from bullpen.files import write_atomically
from bullpen.home.create import STARTER
from tests.commands import Ran
from tests.hub.pen import Pen
from tests.processes import kill


@dataclass
class RunningDirector:
    """One director of a home."""

    pen: Pen
    name: str

    @property
    def file(self) -> Path:
        return self.pen.home.directors / f"{self.name}.yaml"

    @property
    def pid(self) -> int:
        running = find_running(self.pen.home, self.name)
        assert running is not None, f"{self.name} does not run"
        return running.pid

    @property
    def token(self) -> str:
        return load_token(self.pen.home, self.name)

    def cli(self, *words: str) -> Ran:
        return self.pen.cli(*words, cwd=self.pen.root)

    def start(self) -> None:
        ran = self.cli("director", "start", self.name)
        assert ran.code == 0, ran

    def kill(self) -> None:
        """Kill -9."""
        kill(self.pid)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        running = find_running(self.pen.home, self.name)
        assert running is not None, f"{self.name} does not run"
        return ask_director(running, Call(method, path, body=body, read=read_fields))


@contextlib.contextmanager
def made_scheduler(pen: Pen, *entries: dict[str, Any], name: str = "nightly") -> Iterator[Any]:
    """A scheduler that runs; ended at the end, however."""
    director = RunningDirector(pen, name)
    fields = {"type": "scheduler", "port": pen.free_port(), "schedule": list(entries)}
    director.file.write_text(json.dumps(fields))
    director.start()
    try:
        yield director
    finally:
        ended = director.cli("director", "stop", name)
        assert ended.code == 0, ended


DONE = HistoryRow.model_validate(
    {
        "id": "g-done",
        "state": "completed",
        "goal": "Greet",
        "report": "Hello\nthere",
        "branch": "lead-g-done",
        "commit_count": 2,
    }
)
FAILED = HistoryRow.model_validate(
    {"id": "g-failed", "state": "failed", "goal": "Fly", "report": "", "reason": "no wings"}
)
OPEN = Goal(id="g-open", asked=GoalRequest(prompt="Wait\nfor me"), created_at=1_800_000_000.0)


@contextlib.contextmanager
def made_manager(pen: Pen) -> Iterator[RunningDirector]:
    """One with a goal that waits, since its agent does not run, and two that are over."""
    shutil.copytree(STARTER / "roles", pen.root / "roles", dirs_exist_ok=True)  # `manager`, `coder`
    director = RunningDirector(pen, "lead")
    director.file.write_text(json.dumps({"type": "claude", "port": pen.free_port()}))
    Hub(pen.home).do(admit_director("lead", make_token(pen.home, "lead")))
    goals = Goals(open={OPEN.id: OPEN}, history=(FAILED, DONE))
    memory = json.dumps({"memory": goals.model_dump(mode="json")})
    write_atomically(directory_of(pen.home, "lead") / FILE, memory)
    _supervisable(pen.home, "lead").start()
    try:
        yield director
    finally:
        assert director.cli("director", "stop", "lead").code == 0

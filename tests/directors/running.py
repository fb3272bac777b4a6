"""A director that runs: a process of its own, started by its command, against a real hub."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.cli.directors import ask_director, find_running
from bullpen.client.call import Call, read_fields
from bullpen.directors.token import load_token
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

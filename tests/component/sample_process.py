"""Starts and ends sample components; used by all tests that need one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.component import ports
from bullpen.home.paths import Home
from tests.hub.http.http import Answer, ask
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Sample:
    """One process."""

    name: str
    port: int
    home: Home
    process: "subprocess.Popen[bytes]"
    errors: Path

    @property
    def token(self) -> str:
        return (self.home.credentials / "api-token").read_text().strip()

    def ask(self, method: str, target: str, body: Any = None, **options: Any) -> Answer:
        options.setdefault("token", self.token)
        return ask(self.port, method, target, body=body, **options)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/status").json
        return found

    def answers(self) -> bool:
        """Whether this very process does; another may have had the port before."""
        with contextlib.suppress(OSError):
            return bool(self.status()["pid"] == self.process.pid)
        assert self.process.poll() is None, self.errors.read_text()
        return False

    def wait_for(self, state: str) -> None:
        wait_until(lambda: self.status()["state"] == state)

    def wait_until_gone(self) -> int:
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def error_text(self) -> str:
        return self.errors.read_text()


def launch(home: Home, name: str, port: int, **config: Any) -> Sample:
    """Start it and wait for nothing."""
    directory = Path(tempfile.mkdtemp(dir=home.root))
    file = directory / f"{name}.yaml"
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in {"port": port, **config}.items()]
    file.write_text("".join(lines))
    errors = directory / "errors"
    env = {key: value for key, value in os.environ.items() if not key.startswith("BULLPEN_")}
    with errors.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.component.sample", home.root, name, file],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return Sample(name, port, home, process, errors)


@contextlib.contextmanager
def running(home: Home, name: str, port: int, **config: Any) -> Iterator[Sample]:
    """One that answers; ended at the end."""
    sample = launch(home, name, port, **config)
    try:
        wait_until(sample.answers)
        yield sample
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(sample.process.pid, signal.SIGCONT)
        sample.kill()


def is_listened_to(port: int) -> bool:
    return bool(ports.owner_of(port))

"""The process above a director: starts it again when it has crashed, after a wait that grows.

`python -m bullpen.directors.supervise HOME NAME`, started by `bullpen director start`. Ends when
its director ends of its own will (`director stop`), or when it is told to. What it does is written
to `directors/<name>/supervisor.json`, for lists of directors. Knows nothing of what they do.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from bullpen import proc
from bullpen.directors.memory import directory_of
from bullpen.files import make_directory, write_atomically
from bullpen.home.paths import Home
from bullpen.home.supervised import Supervised, supervisor_file
from bullpen.hot.own_python import module_command

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0
HEALTHY_SECONDS = 600.0  # who lived so long begins anew
LOOK_SECONDS = 0.1


def wait_seconds(failures: int) -> float:
    """Before the next start, after so many crashes in a row. Pure."""
    return min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 20))


class Supervisor:
    """One supervisor."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._file = supervisor_file(home, name)
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._state = Supervised(os.getpid(), proc.start_time(os.getpid()) or "")

    def run(self) -> int:
        """Until the director ends of its own will; its exit code."""
        make_directory(directory_of(self._home, self._name), 0o700)
        signal.signal(signal.SIGTERM, self._told_to_end)
        signal.signal(signal.SIGINT, self._told_to_end)
        failures = 0
        is_first = True
        while True:
            began = time.monotonic()
            code, has_served = self._live()
            if code == 0 or self._stop.is_set() or (is_first and not has_served):
                self._file.unlink(missing_ok=True)
                return code
            is_first = False
            failures = 1 if time.monotonic() - began > HEALTHY_SECONDS else failures + 1
            wait, now = wait_seconds(failures), time.time()
            self._note(
                child=0,
                restarts=self._state.restarts + 1,
                ending=_ending(code),
                ended_at=now,
                again_at=now + wait,
            )
            self._stop.wait(wait)
            if self._stop.is_set():
                self._file.unlink(missing_ok=True)
                return 0

    def _live(self) -> tuple[int, bool]:
        """One process of the director: its exit code, and whether it ever served."""
        words = module_command("bullpen.directors.process", str(self._home.root), self._name)
        self._child = child = subprocess.Popen(words)
        if self._stop.is_set():
            child.terminate()
        self._note(child=child.pid, again_at=0.0)
        socket, has_served = self._home.component_socket(child.pid), False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(None if has_served else LOOK_SECONDS)
                # Who was killed may have served since the last look.
                return code, has_served or code < 0
            has_served = socket.exists()

    def _note(self, **changes: object) -> None:
        self._state = Supervised(**{**asdict(self._state), **changes})
        with contextlib.suppress(OSError):  # a full disk must not end what supervises
            text = json.dumps(asdict(self._state))
            write_atomically(self._file, text, mode=0o600)

    def _told_to_end(self, *_: object) -> None:
        self._stop.set()
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()


def _ending(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with code {code}"


if __name__ == "__main__":
    sys.exit(Supervisor(Home(Path(sys.argv[1])), sys.argv[2]).run())

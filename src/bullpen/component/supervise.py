"""The process above a director or the view: starts it again when it has crashed, after a wait that
grows.

`python -m bullpen.component.supervise HOME DIRECTORY PID MODULE [WORD…]`, started by
`cli/supervised`. What it starts is `python -m MODULE HOME [WORD…]`; the first one may run already,
as that PID, because its own supervisor was killed; else PID is 0. Ends when who is below it ends of
its own will (`director stop`), or when it is told to. What it does is written to
`DIRECTORY/supervisor.json`, for lists. Knows nothing of what they do.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bullpen import proc
from bullpen.files import make_directory, write_atomically
from bullpen.home.paths import Home
from bullpen.home.supervised import Supervised, supervisor_file
from bullpen.hot.own_python import module_command

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0
HEALTHY_SECONDS = 600.0  # who lived so long begins anew
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Ending:
    """How one process below a supervisor ended, and whether it ever served."""

    code: int
    has_served: bool
    text: str


def wait_seconds(failures: int) -> float:
    """Before the next start, after so many crashes in a row. Pure."""
    return min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 20))


class Supervisor:
    """One supervisor. `module` and `words` say what it starts."""

    def __init__(self, home: Home, directory: Path, module: str, *words: str) -> None:
        self._home = home
        self._directory = directory
        self._command = module_command(module, str(home.root), *words)
        self._file = supervisor_file(directory)
        self._stop = threading.Event()
        self._end: Callable[[], None] = lambda: None  # tells who is below it to leave
        self._state = Supervised(os.getpid(), proc.start_time(os.getpid()) or "")

    def run(self, running: int = 0) -> int:
        """Until who is below it ends of its own will; its exit code."""
        make_directory(self._directory, 0o700)
        signal.signal(signal.SIGTERM, self._told_to_end)
        signal.signal(signal.SIGINT, self._told_to_end)
        ending = self._follow(running) if running else self._live()
        is_start, failures, began = not running, 0, time.monotonic()
        while ending.code and not self._stop.is_set() and (ending.has_served or not is_start):
            is_start = False
            failures = 1 if time.monotonic() - began > HEALTHY_SECONDS else failures + 1
            wait, now = wait_seconds(failures), time.time()
            self._note(
                child=0,
                restarts=self._state.restarts + 1,
                ending=ending.text,
                ended_at=now,
                again_at=now + wait,
            )
            if self._stop.wait(wait):
                ending = Ending(0, True, "")
                break
            began = time.monotonic()
            ending = self._live()
        self._file.unlink(missing_ok=True)
        return ending.code

    def _live(self) -> Ending:
        """One process, from its start to its end."""
        child = subprocess.Popen(self._command)
        self._end = child.terminate
        if self._stop.is_set():
            child.terminate()
        self._note(child=child.pid, again_at=0.0)
        socket, has_served = self._home.component_socket(child.pid), False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(None if has_served else LOOK_SECONDS)
                text = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
                # Who was killed may have served since the last look.
                return Ending(code, has_served or code < 0, text)
            has_served = socket.exists()

    def _follow(self, pid: int) -> Ending:
        """One that another has started: nobody says with which code it ends. Who leaves removes its
        socket, and who is killed cannot."""
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            self._end = lambda: signal.pidfd_send_signal(process, signal.SIGTERM)
            self._note(child=pid)
            select.select([process], [], [])
        is_crash = self._home.component_socket(pid).exists()
        return Ending(int(is_crash), True, "its process has ended")

    def _note(self, **changes: object) -> None:
        self._state = Supervised(**{**asdict(self._state), **changes})
        with contextlib.suppress(OSError):  # a full disk must not end what supervises
            text = json.dumps(asdict(self._state))
            write_atomically(self._file, text, mode=0o600)

    def _told_to_end(self, *_: object) -> None:
        self._stop.set()
        with contextlib.suppress(ProcessLookupError):
            self._end()


if __name__ == "__main__":
    _home, _directory, _pid, *_words = sys.argv[1:]
    sys.exit(Supervisor(Home(Path(_home)), Path(_directory), *_words).run(int(_pid)))

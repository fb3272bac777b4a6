"""Directors and the view, each below a supervisor: started, given a supervisor again, stopped.

Called by `cli/directors` and `cli/view`, one at a time for each (`alone`).
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.cli.components import OwnComponent, ask_to_leave
from bullpen.cli.start_component import spawn_component, start_component
from bullpen.client import processes
from bullpen.errors import BullpenError, Kind
from bullpen.files import make_directory
from bullpen.home.paths import Home
from bullpen.home.supervised import Supervised, find_above

LEAVE_SECONDS = 30.0
ALONE_SECONDS = 120.0  # longer than a start takes at most
LOOK_AGAIN_SECONDS = 0.05
SUPERVISE = "bullpen.component.supervise"


@dataclass(frozen=True)
class Supervisable:
    """Who can be started below a supervisor: `python -m MODULE HOME [WORD…]`. `directory` is its
    own; `noun` is what messages call it."""

    home: Home
    noun: str
    directory: Path
    errors_name: str
    module: str
    words: tuple[str, ...] = ()

    def find_above(self) -> Supervised | None:
        """Its supervisor."""
        return find_above(self.directory)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only command that starts or stops it."""
        make_directory(self.directory, 0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self.directory / "start.lock", flags, 0o600)
        deadline = time.monotonic() + ALONE_SECONDS
        try:
            while not _is_locked(descriptor):
                if time.monotonic() > deadline:
                    raise BullpenError(
                        f"another command is starting or stopping {self.noun}",
                        hint="bullpen components",
                        kind=Kind.CONFLICT,
                    )
                time.sleep(LOOK_AGAIN_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def start(self) -> int:
        """With a supervisor above it; its pid, when it serves."""
        return start_component(
            self.home,
            self.noun,
            self.errors_name,
            SUPERVISE,
            *self._supervised(0),
            find_pid=self._find_child,
        )

    def supervise(self, pid: int) -> None:
        """Put a supervisor above that process of it, unless it has one. It goes on meanwhile."""
        if self.find_above() is not None:
            return
        process = spawn_component(self.home, self.errors_name, SUPERVISE, *self._supervised(pid))
        deadline = time.monotonic() + LEAVE_SECONDS
        while not self._find_child(process.pid) and process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()  # SIGTERM it would pass on
                raise BullpenError(
                    f"{self.noun} runs, and got no supervisor", kind=Kind.UNAVAILABLE
                )
            time.sleep(LOOK_AGAIN_SECONDS)

    def stop(self, running: OwnComponent | None) -> bool:
        """Stop that process of it and its supervisor; False: there was neither."""
        above = self.find_above()
        if running is not None:
            ask_to_leave(running.socket, running.type, running.name, timeout=0, force=True)
        if above is not None:  # it waits, or was about to start the next one
            with contextlib.suppress(ProcessLookupError):
                os.kill(above.pid, signal.SIGTERM)
            processes.is_gone_within(above.pid, above.start_time, LEAVE_SECONDS)
        return running is not None or above is not None

    def _supervised(self, pid: int) -> tuple[str, ...]:
        return (str(self.directory), str(pid), self.module, *self.words)

    def _find_child(self, pid: int) -> int:
        """The process of it below that supervisor; 0: not yet."""
        above = self.find_above()
        return above.child if above is not None and above.pid == pid else 0


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

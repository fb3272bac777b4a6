"""A person at a bare pseudo-terminal."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import Any

SECONDS = 60.0
# A session of its own, whose terminal is its standard input.
TAKE_TERMINAL = ["setsid", "--ctty"]
ROWS, COLS = 24, 80
# What `attach` writes besides: titles, the key that leaves, and the row that this one covered.
OURS = re.compile(rb"\x1b\]2;[^\x07]*\x07|\x1b7\x1b\[\d+;\d+H\x1b\[m\x1b\(B\x0f.*?\x1b8", re.DOTALL)


class Person:
    """A command on a pseudo-terminal of its own; `seen` is all that it wrote there."""

    def __init__(
        self, argv: list[str], env: dict[str, str], size: tuple[int, int], at: "Person | None"
    ) -> None:
        """`at`: at the terminal of somebody whose command has ended."""
        self.terminal, self._inner = (at.terminal, at._inner) if at else pty.openpty()
        self.before = termios.tcgetattr(self._inner)
        self.resize(*size)
        self.process = subprocess.Popen(
            [*TAKE_TERMINAL, *argv],
            env=env,
            stdin=self._inner,
            stdout=self._inner,
            stderr=self._inner,
        )
        self.seen = b""
        self.late = b""  # what it sends just before it answers

    def resize(self, rows: int, cols: int) -> None:
        size = struct.pack("HHHH", rows, cols, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def type(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def pump(self, seconds: float = 0.0) -> bool:
        """Read what is there; answer as a terminal does."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.terminal, 1 << 16)
        except OSError:
            return False
        self.seen += piece
        if b"\x1b[5n" in piece:
            self.type(self.late + b"\x1b[0n")
        return True

    def wait_for(self, *wanted: bytes, since: int = 0) -> bytes:
        """Until all of these have been seen, after so many bytes."""
        deadline = time.monotonic() + SECONDS
        while not all(text in self.seen[since:] or text in self.written(since) for text in wanted):
            assert time.monotonic() < deadline, f"no {wanted} in {self.seen[since:][-2000:]!r}"
            self.pump(0.05)
        return self.seen[since:]

    def written(self, since: int = 0) -> bytes:
        """What was seen, without our titles and the key that is shown: they come anywhere."""
        return OURS.sub(b"", self.seen[since:])

    def wait(self, seconds: float = SECONDS) -> int:
        """Until it has ended; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still there: {self.seen[-2000:]!r}"
            self.pump(0.02)
        while self.pump():
            pass
        return self.process.returncode

    def detach(self) -> bytes:
        """Leave with the usual key; what was written from then on."""
        since = len(self.seen)
        self.type(b"\x1c")
        assert self.wait() == 0
        return self.seen[since:]

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._inner)

    @property
    def is_raw(self) -> bool:
        return not self.settings[3] & termios.ICANON

    def hang_up(self) -> None:
        """The window is closed."""
        for descriptor in (self.terminal, self._inner):
            os.close(descriptor)
        self.terminal = self._inner = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.terminal, self._inner):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def modes_left_on(output: bytes) -> set[bytes]:
    """Private modes that were turned on and not off again, by order of appearance."""
    on: set[bytes] = set()
    for numbers, switch in re.findall(rb"\x1b\[\?([0-9;]+)([hl])", output):
        for number in numbers.split(b";"):
            (on.add if switch == b"h" else on.discard)(number)
    return on - {b"25", b"7"}

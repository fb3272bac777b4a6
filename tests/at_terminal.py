"""A command with a terminal of its own."""

import contextlib
import os
import pty
import select
import time

from tests.commands import BULLPEN

SECONDS = 120.0


class AtTerminal:
    """A command with a terminal of its own, as a person has it."""

    def __init__(self, *words: str, **env: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execve(BULLPEN, [str(BULLPEN), *words], {**os.environ, **env})
            os._exit(127)
        self.text = ""

    def expect(self, text: str, seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert self._read(deadline - time.monotonic()), f"no {text!r} in {self.text!r}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline - time.monotonic()):
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], max(0, seconds))[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

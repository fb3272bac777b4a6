"""The output log and its timing: every byte, and when it came.

A full disk must not end an agent: what cannot be written is counted as lost, and the
program goes on.
"""

import contextlib
import os
import time


class Log:
    """`<name>.log`, with timing beside it if wanted; rotated once at its limit."""

    def __init__(self, directory: str, name: str, limit: int, timing: bool) -> None:
        self.path = os.path.join(directory, f"{name}.log")  # noqa: PTH118 - pathlib is memory
        self.timing_path = os.path.join(directory, f"{name}.timing") if timing else ""  # noqa: PTH118
        self.limit = limit
        self.lost = 0
        self.last = time.monotonic()
        self.file = self.timing = -1
        self.is_new = not os.path.exists(self.path)  # noqa: PTH110
        try:
            self._open()
        except OSError:
            self.discard()
            raise

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.file = os.open(self.path, flags, 0o600)
        self.timing = os.open(self.timing_path, flags, 0o600) if self.timing_path else -1
        self.size = os.fstat(self.file).st_size

    def write(self, data: bytes) -> None:
        now = time.monotonic()
        try:
            if self.file < 0:
                self._open()  # a rotation failed; the disk may have room again
            written = os.write(self.file, data)
            self.lost += len(data) - written
            self.size += written
            if self.timing >= 0:
                os.write(self.timing, b"%.6f %d\n" % (now - self.last, written))
            if self.size >= self.limit:
                self._rotate()
        except OSError:
            self.lost += len(data)
        self.last = now

    def _rotate(self) -> None:
        self.close()
        for path in filter(None, (self.path, self.timing_path)):
            os.replace(path, f"{path}.1")  # noqa: PTH105
        self._open()

    def close(self) -> None:
        """Forget the numbers too: after a failed rotation they may be a client's."""
        descriptors = (self.file, self.timing)
        self.file = self.timing = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def discard(self) -> None:
        """Take back the files of a program that could not be started."""
        self.close()
        if not self.is_new:
            return
        for path in filter(None, (self.path, self.timing_path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108

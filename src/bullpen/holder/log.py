"""The output log and its timing: every byte, and when it came.

A full disk must not end an agent: what cannot be written is counted as lost.
"""

import os
import time


def open_file(path: str) -> int:
    """To be written at its end; made if need be."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Log:
    """`<name>.log`, with `<name>.timing` beside it unless that is -1; rotated once at its limit."""

    def __init__(self, directory: str, name: str, limit: int, file: int, timing: int = -1) -> None:
        self.path = f"{directory}/{name}.log"
        self.timing_path = f"{directory}/{name}.timing" if timing >= 0 else ""
        self.limit = limit
        self.lost = 0
        self.last = time.monotonic()
        self.file, self.timing = file, timing
        self.size = os.lseek(file, 0, os.SEEK_END)

    def write(self, data: memoryview) -> None:
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

    def _open(self) -> None:
        self.file = open_file(self.path)
        self.timing = open_file(self.timing_path) if self.timing_path else -1
        self.size = os.lseek(self.file, 0, os.SEEK_END)

    def _rotate(self) -> None:
        # Forget the numbers first: after a failed rotation they may be a client's.
        descriptors = (self.file, self.timing)
        self.file = self.timing = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)
        for path in filter(None, (self.path, self.timing_path)):
            os.replace(path, f"{path}.1")  # noqa: PTH105
        self._open()

"""Row 4: the server-side screen against a bare pseudo-terminal."""

import os
import pty
import subprocess
import time
from collections.abc import Iterator
from statistics import median

from bench.table import Row, interleaved, timed
from bullpen.terminal.screen import Screen

LINE = b"\x1b[32m%06d\x1b[0m the quick brown fox jumps over the lazy dog \x1b[1mbold\x1b[0m\r\n"
PIECE = 65536


def rows(short: bool) -> Iterator[Row]:
    """Seconds for some megabytes, and for one snapshot."""
    size, rounds, snapshots = (100_000, 1, 3) if short else (8_000_000, 5, 50)
    data = b"".join(LINE % n for n in range(size // len(LINE % 0)))
    screen = Screen(50, 200)

    def feed() -> None:
        for start in range(0, len(data), PIECE):
            screen.feed(data[start : start + PIECE])

    ours, raw = interleaved(rounds, lambda: timed(feed), lambda: _raw(len(data)))
    yield Row("4", f"screen, {size / 1e6:g} MB fed, against a raw pty", ours, raw, 1.0)
    snapshot = median(timed(screen.lines) for _ in range(snapshots))
    yield Row("4", "snapshot of 50 x 200 (of 0.2 ms)", snapshot, 0.0002, 1.0)


def _raw(size: int) -> float:
    """Read as much from a pseudo-terminal as fast as it comes."""
    parent, child = pty.openpty()
    words = ["sh", "-c", f"stty raw; head -c {size} /dev/zero"]
    try:
        with subprocess.Popen(words, stdin=child, stdout=child):
            os.close(child)
            began, left = time.perf_counter(), size
            while left > 0:
                left -= len(os.read(parent, PIECE))
            return time.perf_counter() - began
    finally:
        os.close(parent)

"""Row 4: the server-side screen against a bare pseudo-terminal."""

import os
import pty
import subprocess
import time

from bench.table import Row, interleaved, timed
from bullpen.terminal.screen import Screen

MEGABYTES = 8
LINE = b"\x1b[32m%06d\x1b[0m the quick brown fox jumps over the lazy dog \x1b[1mbold\x1b[0m\r\n"


def rows() -> list[Row]:
    """Seconds per megabyte, and one snapshot."""
    data = b"".join(LINE % n for n in range(MEGABYTES * 1_000_000 // len(LINE % 0)))
    screen = Screen(50, 200)

    def feed() -> float:
        return timed(lambda: [screen.feed(data[n : n + 65536]) for n in range(0, len(data), 65536)])

    ours, raw = interleaved(5, feed, lambda: _raw(len(data)))
    snapshot = min(timed(screen.lines) for _ in range(50))
    return [
        Row("4a", f"screen, {MEGABYTES} MB fed (against a raw pty)", ours, raw, 1.0),
        Row("4b", "snapshot of 50 x 200 (of 0.2 ms)", snapshot, 0.0002, 1.0),
    ]


def _raw(size: int) -> float:
    """Read as much from a pseudo-terminal as fast as it comes."""
    parent, child = pty.openpty()
    writer = subprocess.Popen(
        ["sh", "-c", f"stty raw; head -c {size} /dev/zero"], stdin=child, stdout=child
    )
    os.close(child)
    began, left = time.perf_counter(), size
    while left > 0:
        left -= len(os.read(parent, 65536))
    took = time.perf_counter() - began
    writer.wait()
    os.close(parent)
    return took

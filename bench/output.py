"""Row 3a: how fast a program's output arrives, through each way there is."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.keepers import need_tmux, scratch_directory
from bench.lines import RAW, DroppedError, Ways, all_ways, exchange
from bench.table import Row, timed

END = b"THIS-IS-THE-END"
LINE = b"%09d " + b"text " * 13 + b"\n"
PRINT = ["/bin/sh", "-c", RAW + 'cat "$0"; exec cat']
TRIES = 20


def rows(short: bool) -> Iterator[Row]:
    """Seconds: as fast as 0.8 of raw is 1.25 of its time, twice as fast as tmux half of it."""
    size, rounds = (300_000, 1) if short else (30_000_000, 5)
    with scratch_directory() as scratch:
        text = scratch / "text"
        with text.open("wb") as file:
            file.writelines(LINE % number for number in range(size // len(LINE % 0)))
            file.write(END)
        with all_ways(scratch / "t") as ways:
            taken = ways.measure(rounds, partial(_print, ways, text))
    for ours, peer, goal in (
        ("socket", "raw", 1 / 0.8),
        ("tty", "tmux", 0.5),
        ("socket", "tmux", None),
        ("tty", "dtach", None),
    ):
        if peer in taken:
            what = f"{size / 1e6:g} MB to the {ours}, against {peer}"
            yield Row("3a", what, taken[ours], taken[peer], goal)
    need_tmux()


def _print(ways: Ways, text: Path, kind: str) -> float:
    """Seconds for all of the text to arrive."""
    for _ in range(TRIES):
        with contextlib.closing(ways.open(kind, [*PRINT, str(text)])) as line:
            try:
                return timed(partial(exchange, line, b"g", END))
            except DroppedError:
                pass  # it got less than all: no measurement
    raise DroppedError(f"in each of {TRIES} tries")

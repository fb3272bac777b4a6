"""Row 3b: a key until its echo is seen, through each way there is."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median

from bench.keepers import need_tmux, scratch_directory
from bench.lines import RAW, Line, all_ways, exchange
from bench.table import Row, timed

ECHO = ["/bin/sh", "-c", RAW + "exec cat"]


def rows(short: bool) -> Iterator[Row]:
    """Medians of many keys, always at the same program."""
    need_tmux()
    count, rounds = (2, 1) if short else (200, 15)
    keys = [b"%c" % (ord("a") + number % 26) for number in range(count)]
    with (
        scratch_directory() as scratch,
        all_ways(scratch / "t") as ways,
        ExitStack() as stack,
    ):
        lines: dict[str, Line] = {}
        for kind in ways.kinds:
            lines[kind] = ways.open(kind, ECHO)
            stack.callback(lines[kind].close)
            lines[kind].send(b"g")

        def type_all(kind: str) -> float:
            return median(timed(partial(exchange, lines[kind], key, key)) for key in keys)

        taken = ways.measure(rounds, type_all)
    for ours, peer, goal in (
        ("socket", "tmux", 1.0),
        ("tty", "tmux", 1.4),
        ("socket", "raw", None),
        ("tty", "dtach", None),
    ):
        if peer in taken:
            what = f"key and echo, {ours}, against {peer}"
            yield Row("3b", what, taken[ours], taken[peer], goal)

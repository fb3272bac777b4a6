"""Row 2b: one more program, until its socket listens, or its session is there."""

from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.keepers import keepers, need_tmux, scratch_directory
from bench.table import Row, timed

SLEEP = ["/bin/sleep", "1000"]


def rows(short: bool) -> Iterator[Row]:
    """Medians of the last block of starts, when there are few and when there are many."""
    need_tmux()
    few, many, block = (2, 4, 2) if short else (50, 500, 50)
    taken: dict[str, list[float]] = {}
    with scratch_directory() as scratch, keepers(scratch / "s") as found:
        for number in range(many):
            turns = list(found.items())
            for kind, keeper in turns if number % 2 else reversed(turns):
                seconds = timed(partial(keeper.start, f"a{number}", SLEEP))
                taken.setdefault(kind, []).append(seconds)
            if number + 1 in (few, many):
                last = {kind: median(times[-block:]) for kind, times in taken.items()}
                ours = last.pop("holder")
                for peer, seconds in sorted(last.items(), reverse=True):
                    # dtach is no goal: it is a small C program that keeps no output.
                    goals = {"tmux": 1.0 if number + 1 == few else 0.5}
                    what = f"start at N = {number + 1}, against {peer}"
                    yield Row("2b", what, ours, seconds, goals.get(peer))

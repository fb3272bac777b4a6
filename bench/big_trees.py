"""Rows 5a and 5b again in a repository of 80,000 files; it takes minutes, so only with `--full`."""

from collections.abc import Iterator

from bench.table import Row
from bench.trees import POOL_GOAL, REMOVE_GOAL, measure


def rows(short: bool) -> Iterator[Row]:
    """As in `trees`."""
    files, rounds = (200, 1) if short else (80_000, 3)
    yield from measure(files, rounds, POOL_GOAL, REMOVE_GOAL)

"""What a cost comes to at two sizes, for the rows of growth."""

import time
from collections.abc import Callable
from functools import partial

from bench.table import Row, interleaved

GOAL = 1.3
REPEAT = 5


def compare(
    what: str, sizes: tuple[str, str], works: list[Callable[[], object]], rounds: int
) -> Row:
    """The same work at the smaller and at the larger size, in processor time."""
    for work in works:
        work()  # what is read for the first time comes from the disk
    smaller, larger = interleaved(rounds, *(partial(_cpu_seconds, work) for work in works))
    return growth_row(what, sizes, smaller, larger)


def growth_row(
    what: str, sizes: tuple[str, str], smaller: float, larger: float, unit: str = "s"
) -> Row:
    """What was measured in another way."""
    return Row("g", f"{what}: {sizes[1]} beside {sizes[0]}", larger, smaller, GOAL, unit)


def _cpu_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(REPEAT):
        work()
    return (time.process_time() - begun) / REPEAT

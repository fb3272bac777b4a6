"""What a section measures with: rows, interleaved medians, and the word for "not here"."""

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# In this process's name, so that whoever finds one that was left knows whose it was.
PREFIX = f"bullpen-bench-{os.getpid()}-"
# Files in memory if there is a place: on a disk where thousands of files were deleted in the last
# minutes, as by the rows of worktrees, ext4 takes half a millisecond to number a new one.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
BULLPEN = str(Path(sys.executable).with_name("bullpen"))
BARE = [os.path.realpath(sys.executable), "-S", "-E", "-c", "pass"]
WAIT_SECONDS = 60.0
NOISE_SECONDS = 1e-4  # a difference of two times that is less, or negative, is noise


class Skipped(Exception):
    """A section, or the rest of one, cannot be measured here; says why."""


@dataclass(frozen=True)
class Row:
    """One line: what was measured, beside what, and which ratio is the goal."""

    number: str
    what: str
    ours: float
    bare: float
    goal: float | None  # ours / bare at most; None: a peer that is shown and is no goal
    unit: str = "s"
    wished: float | None = None  # the goal before it was set to a limit (`limits`)

    @property
    def ratio(self) -> float:
        if self.bare:
            return self.ours / self.bare
        return math.inf if self.ours else 0.0

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return "-"
        return "ok" if self.ratio <= self.goal else "MISSED"


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(rounds: int, *works: Callable[[], float]) -> list[float]:
    """Median of each, measured in turns, there and back, so that noise hits all alike."""
    samples: list[list[float]] = [[] for _ in works]
    pairs = list(zip(samples, works, strict=True))
    for number in range(rounds):
        for sample, work in pairs if number % 2 == 0 else reversed(pairs):
            sample.append(work())
    return [statistics.median(sample) for sample in samples]


def wait_until(
    condition: Callable[[], bool], pause_seconds: float = 0.0005, seconds: float = WAIT_SECONDS
) -> None:
    """Until it is true; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(pause_seconds)

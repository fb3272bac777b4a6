"""Measuring and printing: rows of the table and interleaved medians."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line: what was measured, beside what, and which ratio is the goal."""

    number: str
    what: str
    ours: float  # seconds, or a count
    bare: float
    goal: float  # ours / bare at most
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        return self.ours / self.bare if self.bare else float(self.ours > 0)

    @property
    def met(self) -> bool:
        return self.ratio <= self.goal


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


def show(rows: list[Row]) -> None:
    """The table, and the misses again at the end."""
    print(f"{'row':4} {'what':46} {'ours':>10} {'bare':>10} {'ratio':>8} {'goal':>8}")
    for row in rows:
        print(
            f"{row.number:4} {row.what:46} {_value(row.ours, row.unit):>10}"
            f" {_value(row.bare, row.unit):>10} {_ratio(row.ratio):>8} {_ratio(row.goal):>8}"
            f"  {'ok' if row.met else 'MISSED'}",
            flush=True,
        )


def _value(value: float, unit: str) -> str:
    return f"{value * 1000:.1f} ms" if unit == "ms" else f"{value:g} {unit}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio >= 0.2 or ratio == 0 else f"1/{1 / ratio:.0f}"

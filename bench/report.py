"""Prints the table while it is measured, and what it comes to."""

import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

from bench.limits import set_to_limit
from bench.sections import Section
from bench.table import Row, Skipped

WHAT = 50  # characters of the widest column


@dataclass
class Report:
    """What came out."""

    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # section -> why
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # sections whose turn has not come


def measure(
    sections: Sequence[Section],
    short: bool,
    out: TextIO,
    between: Callable[[Report], object] = lambda _: None,
    limit: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Report:
    """Each row is printed the moment it is there. A section that fails does not stop the rest.
    `between` is called after each section with what came out so far; `limit` is around each."""
    report = Report(left=[section.name for section in sections])
    _print(out, f"{'row':4} {'what':{WHAT}} {'ours':>9} {'beside':>9} {'ratio':>8} {'goal':>8}")
    for section in sections:
        try:
            with limit(), closing(section.rows(short)) as rows:  # type: ignore[type-var]
                for row in map(set_to_limit, rows):
                    if row.number in section.numbers:
                        report.rows.append(row)
                        _print(out, line(row))
        except Skipped as why:
            report.skipped[section.name] = str(why)
            _print(out, f"{section.numbers[0]:4} {section.name}: skipped: {why}")
        except Exception as error:  # noqa: BLE001 - the boundary: the others are measured
            report.failed[section.name] = f"{type(error).__name__}: {error}"
            _print(out, f"{section.numbers[0]:4} {section.name}: FAILED")
            _print(out, "".join(traceback.format_exception(error)).rstrip())
        report.left.remove(section.name)
        between(report)
    _summarize(report, out)
    if short:
        _print(out, "a short run: it shows that each row can be measured, not how good it is")
    return report


def line(row: Row) -> str:
    """As it is printed."""
    ours, bare = show_value(row.ours, row.unit), show_value(row.bare, row.unit)
    ratio, goal = show_ratio(row.ratio), show_ratio(row.goal)
    return (
        f"{row.number:4} {row.what:{WHAT}} {ours:>9} {bare:>9} {ratio:>8} {goal:>8}  {row.verdict}"
    )


def _summarize(report: Report, out: TextIO) -> None:
    judged = [row for row in report.rows if row.goal is not None]
    missed = [row for row in judged if row.verdict == "MISSED"]
    _print(out, f"\n{len(judged) - len(missed)} of {len(judged)} goals met")
    for row in missed:
        what = " ".join(row.what.split())
        _print(
            out,
            f"missed: {row.number} {what}: {show_ratio(row.ratio)}, goal {show_ratio(row.goal)}",
        )
    for name, why in report.skipped.items():
        _print(out, f"skipped: {name}: {why}")
    for name, why in report.failed.items():
        _print(out, f"failed: {name}: {why}")


def _print(out: TextIO, text: str) -> None:
    print(text, file=out, flush=True)


def show_value(value: float, unit: str) -> str:
    """A time in the unit that fits it, or a number with its unit."""
    if unit != "s":
        return f"{_number(value)} {unit}".rstrip()
    for size, name in ((1, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value * 1e6:.0f} µs"


def _number(value: float) -> str:
    """Its column is narrow."""
    if 0 < value < 0.01:
        return f"{value:.4f}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def show_ratio(ratio: float | None) -> str:
    """Such as 1.25x, or 1/30."""
    match ratio:
        case None:
            return "none"
        case _ if ratio >= 100:
            return f"{ratio:.0f}x"
        case _ if ratio >= 0.2 or ratio == 0:
            return f"{ratio:.2f}x"
        case _:
            return f"1/{1 / ratio:.0f}"

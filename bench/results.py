"""Writes what came out into the files of the repository: `benchmarks/RESULTS.md`, and the table of
`docs/growth.md`. Called by `python -m bench --write`, that is by `make bench`."""

import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from bench.limits import find_limit
from bench.report import Report, show_ratio, show_value
from bench.table import Row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
GROWTH = ROOT / "docs" / "growth.md"
BEGIN, END = "<!-- by make bench -->", "<!-- end -->"

ABOUT = """# What `make bench` measured

Every goal is a ratio that is taken in one run, in turns, as a median: absolute times move with the
machine and its load, ratios less so. `beside` is what it is compared with: a bare interpreter, git,
tmux, a limit, or the same at a smaller size. Where a profile has shown that a goal is out of reach,
the row is judged by the limit; the goal that was wished for stands beside it, and the reason below.
This file is written by the command."""


def write(report: Report) -> None:
    """Both files. Called after each section, so that what has been measured is there whatever
    becomes of the rest; the growth of before stays until it is measured anew."""
    made_at = f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(results_text(report, made_at, machine()))
    if any(row.number == "g" for row in report.rows):
        GROWTH.write_text(with_table(GROWTH.read_text(), growth_table(report.rows)))


def results_text(report: Report, made_at: str, where: str) -> str:
    """The whole file."""
    judged = [row for row in report.rows if row.goal is not None]
    missed = [row for row in judged if row.verdict == "MISSED"]
    parts = [
        ABOUT,
        f"{made_at}, {where}.",
        f"**{len(judged) - len(missed)} of {len(judged)} goals met.**",
        _table(
            ("row", "what", "ours", "beside", "ratio", "goal", ""),
            (
                (row.number, " ".join(row.what.split()), *_values(row), _goal(row), row.verdict)
                for row in report.rows
            ),
        ),
    ]
    limited = [row for row in judged if row.wished is not None]
    for title, rows in (("Goals that are set to a limit", limited), ("Missed", missed)):
        if rows:
            reasons = (f"- {row.number} {row.what.strip()}: {_reason(row)}" for row in rows)
            parts.append("\n".join([f"## {title}", "", *reasons]))
    left_out = {**report.skipped, **report.failed, **dict.fromkeys(report.left, "not reached")}
    if left_out:
        lines = (f"- {name}: {why}" for name, why in left_out.items())
        parts.append("\n".join(["## Not measured", "", *lines]))
    return "\n\n".join(parts) + "\n"


def growth_table(rows: Iterable[Row]) -> str:
    """Sizes, costs, and what becomes of the cost of one where there are more."""
    cells = []
    for row in rows:
        what, _, sizes = row.what.partition(": ")
        larger, _, smaller = sizes.partition(" beside ")
        if row.number == "g":
            kind = "flat" if row.verdict == "ok" else "grows"
            ours, beside, ratio = _values(row)
            cells.append((what, f"{smaller} → {larger}", f"{beside} → {ours}", ratio, kind))
    return _table(("what", "size", "cost", "ratio", "class"), cells)


def with_table(page: str, table: str) -> str:
    """The page with that table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def machine() -> str:
    """What it ran on, and what else did."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    load = os.getloadavg()[1]
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), {platform.system()}"
        f" {platform.release().partition('-')[0]}, Python {platform.python_version()},"
        f" {git.stdout.strip()}, load {load:.1f} at the end"
    )


def _values(row: Row) -> tuple[str, str, str]:
    return (
        show_value(row.ours, row.unit),
        show_value(row.bare, row.unit),
        show_ratio(row.ratio),
    )


def _goal(row: Row) -> str:
    wished = f" (wished: {show_ratio(row.wished)})" if row.wished is not None else ""
    return f"{show_ratio(row.goal)}{wished}"


def _reason(row: Row) -> str:
    limit = find_limit(row)
    return limit.why if limit else "no reason is known: look at a profile on a quiet machine"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)

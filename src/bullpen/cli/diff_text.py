"""How a difference looks: coloured as git does it, a stat, a line that sums it up. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from bullpen.text import printable, width
from bullpen.worktrees import FileCount

RESET = "\x1b[m"
GRAPH = 40  # columns for the signs of a stat


def coloured(text: str, has_colours: bool) -> Iterator[str]:
    """Its lines, safe to print."""
    for line in text.splitlines():
        shown = printable(line)
        code = _code(line) if has_colours else ""
        yield f"\x1b[{code}m{shown}{RESET}" if code and shown else shown


def _code(line: str) -> str:
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "#")):
        return "1"
    if line.startswith("@@"):
        return "36"
    return {"+": "32", "-": "31"}.get(line[:1], "")


def stat_lines(files: Sequence[FileCount], has_colours: bool) -> list[str]:
    """` auth.py | 14 +++++-----`, as `git diff --stat`."""
    if not files:
        return []
    names = [printable(file.name) for file in files]
    totals = [(file.added or 0) + (file.deleted or 0) for file in files]
    name_width = max(map(width, names))
    figures = max(len(str(total)) for total in totals)
    most = max([*totals, 1])
    scale = min(1.0, GRAPH / most)
    lines = []
    for file, name, total in zip(files, names, totals, strict=True):
        padded = name + " " * (name_width - width(name))
        if file.added is None:
            lines.append(f" {padded} | {'Bin':>{figures}}")
            continue
        signs = [
            (sign, _signs(count, scale), code)
            for sign, count, code in (("+", file.added, "32"), ("-", file.deleted or 0, "31"))
        ]
        graph = "".join(
            f"\x1b[{code}m{sign * number}{RESET}" if has_colours and number else sign * number
            for sign, number, code in signs
        )
        lines.append(f" {padded} | {total:>{figures}} {graph}".rstrip())
    return lines


def _signs(count: int, scale: float) -> int:
    return max(1, round(count * scale)) if count else 0


def summary(
    commits: int, uncommitted: int, base: str, conflicts: Iterable[tuple[str, Sequence[str]]]
) -> str:
    """`2 commits, nothing uncommitted · no conflict with main · conflicts with bob in auth.py`."""
    words = f"{commits} commit{'s' * (commits != 1)}"
    left = f"{uncommitted} uncommitted file{'s' * (uncommitted != 1)}" if uncommitted else ""
    parts = [f"{words}, {left or 'nothing uncommitted'}"]
    files_by_branch = dict(conflicts)
    if base and not files_by_branch.get(base):
        parts.append(f"no conflict with {printable(base)}")
    for name, files in files_by_branch.items():
        if files:
            some = ", ".join(printable(file) for file in files[:3])
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            parts.append(f"conflicts with {printable(name)} in {some}{more}")
    return " · ".join(parts)

"""How results look: aligned text for people, JSON for programs.

Called by the commands. `live_line` and `pager` show what comes while somebody waits.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bullpen import clock
from bullpen.text import LEAST_COLUMNS, align, printable, width, wrapped

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "colour",
    "has_colours",
    "json_option",
    "printable",
    "show_progress",
    "terminal_columns",
    "width",
    "write",
    "write_error",
    "write_json",
    "write_json_line",
    "write_table",
]

LEAST_INDENT = 4  # of the values of a record
COLOURS = {"ok": "32", "warn": "33", "fail": "31", "error": "31", "dim": "2", "bold": "1"}


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: also makes the boundary print errors as JSON."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
        if value:
            ctx.meta["bullpen.json"] = True
        return value

    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=remember, help="Print JSON."
    )(command)


def write(text: str = "") -> None:
    """A line on standard output."""
    _line(sys.stdout, text)


def show_progress(text: str) -> None:
    """A line that the next one replaces; only for a person at a terminal. Empty: wipe it."""
    if sys.stdout.isatty() and not _is_dumb():
        columns = shutil.get_terminal_size().columns
        sys.stdout.write(f"\r\x1b[K{printable(text)[: columns - 1]}")
        sys.stdout.flush()


def write_json(data: "Mapping[str, object] | BaseModel", err: bool = False) -> None:
    """One JSON document on standard output (errors: standard error): an object, and many of a
    noun under its plural, as docs/json.md says. Times become text with a zone."""
    _line(sys.stderr if err else sys.stdout, json.dumps(_plain(data), indent=2))


def write_json_line(data: "Mapping[str, object] | BaseModel") -> None:
    """The same in one line, for values that come one by one."""
    write(json.dumps(_plain(data)))


def write_error(message: str, hint: str = "") -> None:
    """`error:` and `hint:` on standard error, paths as a person writes them."""
    _line(sys.stderr, f"{colour('error:', 'error', sys.stderr)} {_for_person(message)}")
    if hint:
        _line(sys.stderr, f"hint:  {_for_person(hint)}")


def write_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    cut: Collection[str] | None = None,
    figures: Collection[str] = (),
) -> None:
    """Print `table_lines`."""
    for line in table_lines(headers, rows, drop=drop, cut=cut, figures=figures):
        write(line)


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    cut: Collection[str] | None = None,
    figures: Collection[str] = (),
) -> list[str]:
    """Columns aligned by display width, no wider than the terminal: `drop` names columns that may
    be left out, the first of them first; `cut` those whose texts may be cut (else the last);
    `figures` those that are aligned to the right. A pipe gets all of it. Without headers it is
    one record, which stays whole: its values are wrapped."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not headers:
        return _record_lines(cells)
    from bullpen.table import lay_out

    table, columns = [headers, *cells], terminal_columns()
    first, *lines = lay_out(headers, table, columns, drop=drop, cut=cut, figures=figures)
    return [colour(first, "dim"), *lines]


def _record_lines(cells: Sequence[Sequence[str]]) -> list[str]:
    """Names and values. What does not fit goes below its value; where names would leave too little
    room for values, long names have a line of their own."""
    lines, columns = align(cells), terminal_columns()
    if not columns or all(width(line) <= columns for line in lines):
        return lines
    names = sum(max(map(width, each)) + 2 for each in list(zip(*cells, strict=True))[:-1])
    indent = min(names, max(columns - LEAST_COLUMNS, LEAST_INDENT))
    shown = []
    for line in lines:
        name = line[:names].rstrip()
        for value in wrapped(line[names:], columns - indent):
            # A word that is too long begins further left.
            begin = max(min(indent, columns - width(value)), LEAST_INDENT)
            if value and width(name) + 2 > begin:
                shown.append(name)
                name = ""
            shown.append((name.ljust(begin) + value).rstrip())
            name = ""
    return shown


def terminal_columns() -> int:
    """How wide a person's terminal is; 0, which is no limit, if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def colour(text: str, meaning: str, stream: Any = None) -> str:
    """Coloured only where `has_colours` says so."""
    if not has_colours(stream or sys.stdout):
        return text
    return f"\x1b[{COLOURS[meaning]}m{text}\x1b[0m"


def has_colours(stream: Any) -> bool:
    """Whether it is the terminal of a person who did not say NO_COLOR, and can show colours."""
    return not os.environ.get("NO_COLOR") and not _is_dumb() and bool(stream.isatty())


def _for_person(text: str) -> str:
    """Printable, with `~` for the person's own directory; not where a shell would leave that as it
    is: in quotes, or behind a `=`."""
    home = os.environ.get("HOME", "").rstrip("/")
    if home:
        text = re.sub(rf"(?<![\w/'\"=.~-]){re.escape(home)}(?=/)", "~", text)
    return printable(text, lines=True)


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def _plain(data: object) -> Any:
    """What JSON has names for. It is written in ASCII: no control characters."""
    return clock.with_iso_times(json.loads(json.dumps(data, default=_encode)))


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return clock.to_text(value)
    return (
        value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else str(value)
    )


def _line(stream: Any, text: str) -> None:
    # A file name in another encoding reaches us as surrogates; never die over printing it.
    stream.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")

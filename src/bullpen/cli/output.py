"""How results look: aligned text for people, JSON for programs.

The only place that writes to the terminal.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from bullpen import clock
from bullpen.text import align, printable, width

__all__ = [
    "colour",
    "json_option",
    "printable",
    "show_progress",
    "width",
    "write",
    "write_error",
    "write_json",
    "write_table",
]

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
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stdout.write(f"\r\x1b[K{printable(text)[: columns - 1]}")
        sys.stdout.flush()


def write_json(data: object, err: bool = False) -> None:
    """One JSON document on standard output (errors: standard error)."""
    text = json.dumps(data, indent=2, default=_encode)  # ASCII: no control characters
    _line(sys.stderr if err else sys.stdout, text)


def write_error(message: str, hint: str = "") -> None:
    """`error:` and `hint:` on standard error."""
    _line(sys.stderr, f"{colour('error:', 'error', sys.stderr)} {printable(message, lines=True)}")
    if hint:
        _line(sys.stderr, f"hint:  {printable(hint, lines=True)}")


def write_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns aligned by display width; empty `headers` prints rows only."""
    cells = [[printable(cell) for cell in row] for row in rows]
    for number, line in enumerate(align([list(headers), *cells] if headers else cells)):
        write(colour(line, "dim") if headers and number == 0 else line)


def colour(text: str, meaning: str, stream: Any = None) -> str:
    """Coloured only for a person at a terminal who did not say NO_COLOR."""
    stream = stream or sys.stdout
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\x1b[{COLOURS[meaning]}m{text}\x1b[0m"


def _encode(value: object) -> str:
    return clock.to_text(value) if isinstance(value, datetime) else str(value)


def _line(stream: Any, text: str) -> None:
    # A file name in another encoding reaches us as surrogates; never die over printing it.
    stream.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")

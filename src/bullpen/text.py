"""Text that people read in a terminal: made safe, and measured.

What came from outside (file names, branches, YAML, a program's output) may hold escape
sequences; `printable` makes them visible instead of letting them drive the reader's terminal.
"""

import unicodedata
from collections.abc import Sequence


def printable(text: str, lines: bool = False) -> str:
    """Control characters and undecodable bytes made visible (`\\x1b`, `\\n`)."""
    if text.isascii() and text.isprintable():
        return text  # nearly always, and lists hold thousands of them
    return "".join(
        char if _is_safe(char) or (lines and char == "\n") else _escape(char) for char in text
    )


def width(text: str) -> int:
    """Columns that the text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of printable cells as lines, columns aligned by display width."""
    if not rows:
        return []
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _is_safe(char: str) -> bool:
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

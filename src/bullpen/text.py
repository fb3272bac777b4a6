"""Text for a terminal: made safe, and measured.

File names, branches, YAML, messages and output of programs may contain escape sequences.
`printable` makes them visible, so that they cannot control the reader's terminal: it is for
whatever is shown. `literal` is for what a person decides on: two different texts never look the
same, and nothing in them is invisible. No I/O.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence

LEAST_COLUMNS = 20  # a terminal that is narrower breaks lines by itself
MARKS = "⟨⟩⏎⇥"  # what `literal` and `in_one_line` write themselves
MOST_MARKS = 3  # combining marks on one letter
# Invisible, or as empty as a space, and of a category that is usually visible.
BLANKS = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2800, 0x3164, 0xFFA0, 0x16FE4),
            *(0x1D159, *range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
        ),
    )
)
# The categories Cc, Cf, Cs, Zl and Zp: written out, because logs are long and a look at each
# character is slow. A test compares them.
_FORMAT = (
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\ud800-\udfff"
)
_UNSAFE = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_FORMAT}]")
_UNSAFE_IN_LINES = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f{_FORMAT}]")
_ODD = re.compile(r"[A-Za-z]?[^\n -~]+")
_EMPTY = re.compile(r" {80,}|\n{10,}")


def printable(text: str, lines: bool = False) -> str:
    """What controls a terminal, changes the order of characters or is no text, made visible
    (`\\x1b`, `\\u202e`). With `lines` line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text  # nearly always, and lists hold thousands of them
    return (_UNSAFE_IN_LINES if lines else _UNSAFE).sub(_escape, text)


def literal(text: str) -> str:
    """The text as it has to be seen before somebody decides on it. Line breaks stay. What is
    invisible, controls a terminal or changes the order of characters is written as `⟨U+202E⟩`, a
    tab as `⇥`, a long empty stretch as `⟨200 spaces⟩`. Those marks themselves are written as
    `⟨U+27E8⟩`: a text cannot pretend to hold one."""
    return _EMPTY.sub(_counted, _ODD.sub(_shown, text))


def literal_value(value: object) -> str:
    """A text like that; anything else as JSON."""
    return literal(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def in_one_line(text: str) -> str:
    """What `literal` made, for a list: line breaks as `⏎`."""
    return text.replace("\n", "⏎")


def width(text: str) -> int:
    """Columns that the text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut_to(text: str, columns: int) -> str:
    """As much of a printable text as fits; `…` says that there was more."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""


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


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _shown(match: re.Match[str]) -> str:
    shown, room = [], 0  # for so many more combining marks
    for char in match[0]:
        category = unicodedata.category(char)
        is_mark = category in ("Mn", "Mc")
        is_hidden = char in BLANKS or category[0] in "CZ" or category == "Me"
        if char == "\t":
            shown.append("⇥")
        elif is_hidden or char in MARKS or (is_mark and not room):
            shown.append(f"⟨U+{ord(char):04X}⟩")
        else:
            shown.append(char)
        room = MOST_MARKS if category[0] == "L" else room - 1 if is_mark and room else 0
    return "".join(shown)


def _counted(match: re.Match[str]) -> str:
    count = len(match[0])
    return f"⟨{count} spaces⟩" if match[0][0] == " " else f"\n⟨{count - 1} empty lines⟩\n"


def seconds_text(seconds: float) -> str:
    """`45 s`, `1200 s`, `0.25 s`: a wait that was counted down has no more digits than it needs."""
    return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.2g} s"


def wrapped(text: str, columns: int) -> list[str]:
    """Its words in lines of at most so many columns; a longer word stays whole. 0 is no limit."""
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        longer = f"{lines[-1]} {word}"
        if columns and lines[-1].strip() and width(longer) > columns:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def broken(text: str, columns: int) -> Iterator[str]:
    """Its lines as a terminal of so many columns would break them."""
    for line in text.split("\n"):
        start, used = 0, 0
        for index, char in enumerate(line):
            size = width(char)
            if used + size > columns:
                yield line[start:index]
                start, used = index, 0
            used += size
        yield line[start:]

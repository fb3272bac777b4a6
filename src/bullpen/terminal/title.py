"""The window's title while a person is attached, and notifications beside it. Pure.

The text may come from an agent: it must not end the title and begin another sequence, change the
reading direction, or break the line.
"""

import re
import unicodedata

LONGEST = 200

# The terminal keeps the title that it has; `Undo` gets it back.
KEEP = b"\x1b[22;2t"

_SPACES = re.compile(r"\s+")


def title(text: str) -> bytes:
    """The sequence that sets it."""
    return b"\x1b]2;%s\x07" % clean(text).encode()


def notification(text: str) -> bytes:
    """The bell, and what terminals show outside of their window: some know the first sequence, some
    the second, the others none."""
    words = clean(text).replace(";", ",").encode()
    return b"\x07\x1b]9;%s\x07\x1b]777;notify;Bullpen;%s\x07" % (words, words)


def clean(text: str) -> str:
    """On one line, without control and format characters."""
    plain = "".join(
        char
        for char in _SPACES.sub(" ", text[: 4 * LONGEST])
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    )
    return plain.strip()[:LONGEST]

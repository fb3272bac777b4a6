"""Separates a terminal's answers from what a person types.

Every attached terminal answers a program's question; only one answer may reach the program.
"""

import re

_ANSWERS = re.compile(
    rb"""
      \x1b\[ (?: [?>=] [0-9;]* c             # device attributes
               | \?? [0-9]+ ; [0-9;]* R      # cursor position
               | \?? [0-9;]+ n               # status, colour scheme
               | \?? [0-9;]+ \$ y            # a mode's state
               | \? [0-9]+ u                 # kitty keyboard flags
               | [4689] ; [0-9]+ ; [0-9]+ t  # sizes
               | \? [0-9;]+ S                # graphics
             )
    | \x1b\] [0-9]+ ; [^\x07\x1b]* (?: \x07 | \x1b\\ )   # colours, clipboard
    | \x1bP [>!01] [^\x1b]* \x1b\\           # name and version, capabilities, settings
    """,
    re.VERBOSE,
)


# Not less than three bytes: Escape, Alt-[, Alt-] and Alt-P are keys.
_HALF = re.compile(
    rb"\x1b(?:\[[?>=0-9][0-9;]{0,60}\$?|\][0-9][^\x07\x1b]{0,4000}\x1b?|P[>!01][^\x1b]{0,4000}\x1b?)\Z"
)


def cut_half_answer(typed: bytes) -> tuple[bytes, bytes]:
    """The input, and the beginning of an answer at its end whose rest has not come yet."""
    half = _HALF.search(typed) if b"\x1b" in typed else None
    return (typed[: half.start()], half[0]) if half else (typed, b"")


def without_answers(typed: bytes) -> bytes:
    """The input with every answer of the terminal taken out."""
    return _ANSWERS.sub(b"", typed) if b"\x1b" in typed else typed

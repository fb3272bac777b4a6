"""Draws the program's screen, with a status row below it.

Used for `--status` (in raw output any `clear` would wipe the row) and for clients that only watch,
whose terminal may have another size. The program's output goes to an emulator; what changed is
drawn at most 60 times a second. Sequences for keyboard, mouse and questions are passed through.
"""

import re

from bullpen.terminal.screen import Screen
from bullpen.terminal.title import clean, title
from bullpen.text import width

FRAME_SECONDS = 1 / 60
PASSED_BYTES = 1 << 20  # a program that only rings the bell, on a terminal that is stuck
LEAST_ROWS = 3  # with fewer there is no room for a status

# The alternate screen, so that what stood here is back in the end. No wrapping: a terminal
# may find a character wider than we do.
OPENING = b"\x1b[?1049h\x1b[?7l\x1b[H\x1b[2J"

INPUT_MODES = frozenset({1, 9, 66, *range(1000, 1007), 1015, 1016, 2004, 2031})
INPUT_MODES_OFF = (
    b"\x1b[?%sl\x1b>\x1b[>4m" % ";".join(map(str, sorted(INPUT_MODES))).encode()
)  # what a reset means to them

_PASSED = re.compile(
    rb"""
      (?P<switch> \x1b\[\? [0-9;]{1,60} [hl] )
    | (?P<reset> \x1bc )
    | (?P<whole>
          \x1b\[ (?: [>=<] [0-9;]{0,60} u | \?u | > [0-9;]{0,60} [mnqc] | [0-9]{0,2} \ q
                   | =? [0-9]{0,3} c | \?? [0-9;]{0,60} n | \?? [0-9;]{1,60} \$p )
        | \x1b[=>]
        | \x1b\] (?: 52 ; [^\x07\x1b]{0,100000} | [0-9;]{1,20} ; \? ) (?: \x07 | \x1b\\ )
        | \x1bP [+$] q [^\x1b]{0,4000} \x1b\\ )
    | \x1b [\]P_^X] [^\x07\x1b]* (?: \x07 | \x1b\\ )   # a string: its end is no bell
    | (?P<bell> \x07 )
    """,
    re.VERBOSE,
)
_CUT = re.compile(rb"\x1b(?:\[[?>=<]?[0-9;]{0,60}[\ $]?|[\]P_^X][^\x07\x1b]{0,100000}\x1b?)?\Z")


class PassedOn:
    """What of the output the real terminal has to see."""

    def __init__(self) -> None:
        self._cut = b""

    def feed(self, output: bytes) -> bytes:
        text = self._cut + output
        passed = b"".join(map(self._pass, _PASSED.finditer(text))) if b"\x1b" in text else b""
        cut = _CUT.search(text) if b"\x1b" in text else None
        self._cut = cut[0] if cut else b""
        return passed or (b"\x07" if b"\x1b" not in text and b"\x07" in text else b"")

    def _pass(self, match: re.Match[bytes]) -> bytes:
        if match["switch"]:
            modes = match[0][3:-1].split(b";")
            ours = [mode for mode in modes if mode and int(mode) in INPUT_MODES]
            return b"\x1b[?%s%s" % (b";".join(ours), match[0][-1:]) if ours else b""
        if match["reset"]:
            return INPUT_MODES_OFF
        return match[0] if match["whole"] or match["bell"] else b""


class Drawn:
    """The program's screen on ours, cut to what fits."""

    def __init__(self, status: bool, read_only: bool, program: tuple[int, int]) -> None:
        """`program` is the size that the program has now, which a watcher does not change."""
        self._wants_status = status
        self._read_only = read_only
        self._screen = Screen(*program)
        self._passed_on = PassedOn()
        self._passed = b""
        self._status = ""
        self._rows, self._cols = program
        self._dirty = True  # something is to be drawn
        self._stale_status = True
        self._redraw = False  # all of it, changed or not
        self._is_cleared = True  # nothing is seen beside the program's screen
        self._drawn_at = 0.0

    takes_all = True  # output is never held back: a slow terminal just sees fewer pictures

    def open(self, size: tuple[int, int]) -> bytes:
        self._rows, self._cols = size
        self._screen = Screen(*(self._program_size() or (self._screen.rows, self._screen.cols)))
        self._passed_on = PassedOn()
        self._dirty = self._stale_status = True
        return OPENING

    def resize(self, size: tuple[int, int]) -> bytes:
        self._rows, self._cols = size
        if program := self._program_size():
            self._screen.resize(*program)
        self._redraw = True
        self._dirty = self._stale_status = True
        return b"\x1b[2J"

    def restart(self, program: tuple[int, int]) -> None:
        """Somebody else gave the program another size: all it shows comes again."""
        self._screen = Screen(*program)
        self._passed_on = PassedOn()
        self._is_cleared = False
        self._redraw = self._dirty = self._stale_status = True

    def asked_size(self) -> dict[str, object]:
        """What to ask the holder for."""
        size = self._program_size()
        return {"rows": size[0], "cols": size[1]} if size else {}

    def show_status(self, text: str) -> bytes | None:
        """In the row, and in the title."""
        if text != self._status:
            self._status = text
            self._dirty = self._stale_status = True
        return title(text)

    def feed(self, output: bytes) -> None:
        self._screen.feed(output)
        if not self._read_only and len(self._passed) < PASSED_BYTES:
            self._passed += self._passed_on.feed(output)
        self._dirty = True

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to write; None: nothing is."""
        return max(self._drawn_at + FRAME_SECONDS - now, 0.0) if self._dirty else None

    def take(self, now: float) -> bytes:
        """What to write now."""
        if not self._dirty or now < self._drawn_at + FRAME_SECONDS:
            return b""
        self._drawn_at = now
        self._dirty = False
        passed, self._passed = self._passed, b""
        # Questions go last: one is about the cursor.
        return b"\x1b[?2026h\x1b[?25l%s\x1b[?2026l%s" % (self._picture().encode(), passed)

    def closing(self, ended: bool) -> bytes:  # noqa: ARG002
        """After everything is undone: what stood here is back."""
        return b"\r"

    @property
    def _has_status(self) -> bool:
        return self._wants_status and self._rows >= LEAST_ROWS

    def _program_size(self) -> tuple[int, int] | None:
        return None if self._read_only else (self._rows - self._has_status, self._cols)

    def _picture(self) -> str:
        room = self._rows - self._has_status
        parts = [] if self._is_cleared else ["\x1b[m\x1b[2J"]
        self._is_cleared = True
        changed = self._screen.take_changed()
        for row in range(self._screen.rows) if self._redraw else changed:
            if row < room:
                text, filled = self._screen.styled_line(row, self._cols)
                rest = "\x1b[K" if filled < self._cols else ""
                parts.append(f"\x1b[{row + 1};1H{text}{rest}")
        self._redraw = False
        if self._has_status and self._stale_status:
            parts.append(f"\x1b[{self._rows};1H\x1b[7m{fit(self._status, self._cols)}\x1b[m")
        self._stale_status = False
        cursor = self._screen.cursor
        if cursor.row < room and cursor.col < self._cols:
            shown = "\x1b[?25h" if cursor.visible else ""
            parts.append(f"\x1b[{cursor.row + 1};{cursor.col + 1}H{shown}")
        return "".join(parts)


def fit(text: str, cols: int) -> str:
    """Exactly so many columns: cut, or filled up with blanks."""
    text = clean(text)
    while width(text) > cols:
        text = text[:-1]
    return text + " " * (cols - width(text))

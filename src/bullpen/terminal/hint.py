"""The key that leaves, shown for a moment over the program's screen. Pure.

`attach` writes everything through it. The row that it covers is put back before anything else is
written, from an emulator that has seen the same output: nothing of the program's screen is lost.
Where that could not be done (the program has saved the cursor, which we need to save ourselves,
or counts rows in another way) nothing is shown. The emulator is loaded when the first picture has
been written.
"""

import re
from typing import TYPE_CHECKING

from bullpen.terminal.sequence_state import SequenceState
from bullpen.terminal.title import clean
from bullpen.text import width

if TYPE_CHECKING:
    from bullpen.terminal.screen import Screen

BEGIN_SECONDS = 0.3  # after entering: what is there has been drawn
SHOWN_SECONDS = 2.5

# The cursor saved by the program; origin mode, margins; back from another screen, which brings
# back a saved cursor.
_UNFIT = re.compile(
    rb"\x1b(?:7|\[s|\[\?(?:[0-9]{1,4};){0,8}(?:(?:6|69|1048)(?:;[0-9]{1,4}){0,8}h|104[89](?:;[0-9]{1,4}){0,8}l))"
)
# How Claude Code begins: it resets the margins, and comes back to this cursor at once and once.
_HARMLESS = b"\x1b7\x1b[r\x1b8"
_LONGEST = 80  # bytes of such a sequence


class Hint:
    """Over as soon as `is_over`; then it passes everything through."""

    def __init__(self, text: str, size: tuple[int, int]) -> None:
        self._text = clean(text)
        self._rows, self._cols = size
        self._begins_at: float | None = None
        self._written: list[bytes] = []  # until there is a screen
        self._tail = b""
        self._is_unfit = False
        self._screen: Screen | None = None
        self._sequence_state = SequenceState()
        self._covered: int | None = None  # the row
        self.is_over = not self._text or self._rows < 2 or self._cols < width(self._text) + 4

    @property
    def is_shown(self) -> bool:
        return self._covered is not None

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to write."""
        if self.is_over or self._begins_at is None:
            return None
        due = self._begins_at + (SHOWN_SECONDS if self._screen else 0.0)
        return max(due - now, 0.0)

    def add(self, output: bytes, now: float) -> bytes:
        """The output, with what is to be written before and after it."""
        if self.is_over:
            return output
        self._begins_at = now + BEGIN_SECONDS if self._begins_at is None else self._begins_at
        before = self._uncover() if output or now >= self._begins_at + SHOWN_SECONDS else b""
        self._see(output)
        if now >= self._begins_at + SHOWN_SECONDS or self._is_unfit:
            self.is_over = True
            return before + output
        is_time = now >= self._begins_at and self._sequence_state.is_whole
        return before + output + (self._cover() if is_time and not self.is_shown else b"")

    def end(self) -> bytes:
        """What puts the row back, if it is covered."""
        self.is_over = True
        return self._uncover()

    def _see(self, output: bytes) -> None:
        if not output:
            return
        self._sequence_state.feed(output)
        recent = self._tail + output
        self._is_unfit = self._is_unfit or bool(_UNFIT.search(recent.replace(_HARMLESS, b"")))
        self._tail = recent[-_LONGEST:]
        if self._screen is None:
            self._written.append(output)
        else:
            self._screen.feed(output)

    def _cover(self) -> bytes:
        if self._screen is None:
            from bullpen.terminal.screen import Screen  # slow

            self._screen = Screen(self._rows, self._cols)
            self._screen.feed(b"".join(self._written))
            self._written.clear()
        cursor = self._screen.cursor
        if cursor.col == self._cols - 1:
            return b""  # the next character may begin a line: not all restore that
        self._covered = _row_for(self._screen.lines(), cursor.row)
        col = self._cols - width(self._text) - 2
        text = f"\x1b[{self._covered + 1};{col}H\x1b[m\x1b(B\x0f\x1b[7m {self._text} "
        return f"\x1b7{text}\x1b8".encode()

    def _uncover(self) -> bytes:
        if self._covered is None or self._screen is None:
            return b""
        text, _ = self._screen.styled_line(self._covered)
        row, self._covered = self._covered, None
        return f"\x1b7\x1b[{row + 1};1H\x1b[m\x1b(B\x0f\x1b[2K{text}\x1b8".encode()


def _row_for(lines: list[str], cursor: int) -> int:
    """An empty row near an edge, else an edge, and not where somebody types."""
    last = len(lines) - 1
    near = [last, 0, last - 1, 1]
    empty = [row for row in near if 0 <= row <= last and row != cursor and not lines[row]]
    return empty[0] if empty else (last if cursor != last else 0)

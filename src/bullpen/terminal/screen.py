"""A terminal's screen in memory: output in, lines and cursor out.

The only module that knows the emulator library. Used by the hub, `attach --status` and `peek`.
Answers no questions of the program and knows no input modes.
"""

import codecs
from dataclasses import dataclass

# The library's own typing does not say that these are public.
from avt import Color, Pen, Vt  # type: ignore[attr-defined]

from bullpen.terminal.clusters import Clusters
from bullpen.terminal.last_screen import LEAST_BYTES, Region, last_screen
from bullpen.terminal.sequence_state import SequenceState

# With one column the library (0.1.2) panics on a wide character.
LEAST_ROWS, LEAST_COLS = 1, 2
WAITING_BYTES = 1 << 18


@dataclass(frozen=True)
class Cursor:
    """Counted from zero."""

    row: int
    col: int
    visible: bool


class Screen:
    """`rows` lines of `cols` columns, without scrollback."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = max(rows, LEAST_ROWS), max(cols, LEAST_COLS)
        self._clusters = Clusters()
        self._region = Region()
        self._sequence_state = SequenceState()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._vt = Vt(self.cols, self.rows, 0)
        self._changed = set(range(self.rows))

    def feed(self, output: bytes) -> None:
        """More output; a character may be split between calls. Output is kept until the screen
        is read; then only its end is fed to the emulator.
        """
        self._waiting.append(output)
        self._waiting_bytes += len(output)
        if self._waiting_bytes >= WAITING_BYTES:
            self._feed_waiting()

    def _feed_waiting(self) -> None:
        if not self._waiting:
            return
        output = self._shortened(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0
        text = self._clusters.pack(self._decoder.decode(output))
        try:
            lines, _ = self._vt.feed_str(text)
        except BaseException as error:
            # No such text is known. But a panic is not an Exception, and output of an agent
            # must not end the process that shows it: the screen begins anew.
            if type(error).__name__ != "PanicException":
                raise
            self._begin()
            return
        self._changed.update(lines)

    def _shortened(self, output: bytes) -> bytes:
        """With the same outcome."""
        first = output.find(b"\n") + 1 if len(output) >= LEAST_BYTES else len(output)
        begin, rest = output[:first], output[first:]
        self._note(begin)
        if rest and self._sequence_state.is_whole and not self._region.is_set:
            rest = last_screen(rest, self.rows)
        self._note(rest)
        return begin + rest

    def _note(self, output: bytes) -> None:
        self._region.feed(output)
        self._sequence_state.feed(output)

    def resize(self, rows: int, cols: int) -> None:
        self._feed_waiting()
        self.rows, self.cols = max(rows, LEAST_ROWS), max(cols, LEAST_COLS)
        self._vt.resize(self.cols, self.rows)
        self._changed = set(range(self.rows))

    def take_changed(self) -> list[int]:
        """The lines that may look different since this was last asked."""
        self._feed_waiting()
        changed = sorted(self._changed)
        self._changed.clear()
        return changed

    @property
    def cursor(self) -> Cursor:
        self._feed_waiting()
        cursor = self._vt.cursor
        # After the last column is filled the library's cursor stands beyond it.
        return Cursor(cursor.row, min(cursor.col, self.cols - 1), cursor.visible)

    def lines(self) -> list[str]:
        """The text of every line, without spaces at its end."""
        self._feed_waiting()
        text = self._clusters.unpack("\n".join([line.text for line in self._vt.view()]))
        return [line.rstrip() for line in text.split("\n")]

    def styled_line(self, row: int, cols: int | None = None) -> tuple[str, int]:
        """One line with its colours, and the columns it takes, at most `cols`.

        Blanks at its end are left out, and the colours are off there.
        """
        self._feed_waiting()
        limit = self.cols if cols is None else cols
        parts: list[str] = []
        pen: Pen | None = None  # None: the terminal's own colours
        blank = filled = 0
        for cell in self._vt[row].cells:
            if not cell.width:
                continue  # the second half of a wide character
            if filled + blank + cell.width > limit:
                break
            wanted = None if cell.pen.is_default() else cell.pen
            if cell.char == " " and wanted is None:
                blank += 1  # written only if something follows
                continue
            if blank:
                parts.append("\x1b[m" if pen else "")
                parts.append(" " * blank)
                filled += blank
                pen, blank = None, 0
            if wanted != pen:
                pen = wanted
                parts.append(_select(pen) if pen else "\x1b[m")
            parts.append(cell.char)
            filled += cell.width
        if pen:
            parts.append("\x1b[m")
        return self._clusters.unpack("".join(parts)), filled


ATTRIBUTES = (
    ("bold", "1"),
    ("faint", "2"),
    ("italic", "3"),
    ("underline", "4"),
    ("blink", "5"),
    ("inverse", "7"),
    ("strikethrough", "9"),
)


def _select(pen: Pen) -> str:
    """The sequence that turns to these colours from any others."""
    codes = ["0", *(code for name, code in ATTRIBUTES if getattr(pen, name))]
    codes += _colour(pen.foreground, "38") + _colour(pen.background, "48")
    return f"\x1b[{';'.join(codes)}m"


def _colour(colour: Color | None, code: str) -> list[str]:
    match colour:
        case Color.RGB():
            return [code, "2", str(colour[0]), str(colour[1]), str(colour[2])]
        case Color.Indexed():
            return [code, "5", str(colour[0])]
    return []

"""Writes the program's bytes to the person's terminal unchanged."""

from typing import TYPE_CHECKING

from bullpen.terminal.sequence_state import SequenceState
from bullpen.terminal.title import title

if TYPE_CHECKING:
    from bullpen.terminal.screen import Screen


class Raw:
    """Passes everything through; the status is the window's title."""

    takes_all = False  # a slow terminal holds the output back, up to the holder

    def __init__(self) -> None:
        self._size = (0, 0)
        self._parts: list[bytes] = []
        self._sequence_state = SequenceState()
        self._last = b""
        self._replayed: Screen | None = None  # takes the next piece, which is a replay

    def open(self, size: tuple[int, int]) -> bytes:
        """What stood here moves up, out of sight but not lost, and the program gets it all."""
        self._size = size
        self._sequence_state = SequenceState()
        return b"\r\n" * (size[0] - 1) + b"\x1b[H\x1b[J"

    def resize(self, size: tuple[int, int]) -> bytes:
        self._size = size
        return b""

    def restart(self, program: tuple[int, int]) -> None:
        """The program has another size. The replay that follows is drawn as that size shows it: as
        bytes it would bring back the rows that only the size of before had."""
        from bullpen.terminal.screen import Screen  # slow, and seldom needed

        self._replayed = Screen(*program)

    def asked_size(self) -> dict[str, object]:
        return {"rows": self._size[0], "cols": self._size[1]}

    def show_status(self, text: str) -> bytes | None:
        """What to write; None: not now."""
        return title(text) if self._sequence_state.is_whole else None

    def feed(self, output: bytes) -> None:
        if self._replayed is not None:
            self._replayed.feed(output)
            output, self._replayed = self._picture(self._replayed), None
        self._parts.append(output)

    def _picture(self, screen: "Screen") -> bytes:
        rows, cols = self._size
        parts = ["\x1b[m\x1b[2J"]
        for row in range(min(screen.rows, rows)):
            text, _ = screen.styled_line(row, cols)
            parts.append(f"\x1b[{row + 1};1H{text}")
        cursor = screen.cursor
        parts.append(f"\x1b[m\x1b[{cursor.row + 1};{cursor.col + 1}H")
        return "".join(parts).encode()

    def wait(self, _now: float) -> float | None:
        return 0.0 if self._parts else None

    def take(self, _now: float) -> bytes:
        if not self._parts:
            return b""
        output = b"".join(self._parts)
        self._parts.clear()
        self._sequence_state.feed(output)
        self._last = output[-1:]
        return output

    def closing(self, ended: bool) -> bytes:
        """The next line is free: below all that is seen, or where the program ended."""
        if ended:
            return b"" if self._last == b"\n" else b"\r\n"
        return b"\x1b[999;1H\r\n"

"""The program's bytes on the person's terminal, as they are."""

import re

from bullpen.terminal.title import title

_UNFINISHED = re.compile(rb"\x1b(?:(?P<string>[\]P_^X])[^\x07]*|\[[0-?]*[ -/]*|[ -/]*)?\Z")
_HALF_CHARACTER = re.compile(
    rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


class Ground:
    """Whether output, fed in pieces, stands in the middle of a sequence or character.

    There nothing else may be written.
    """

    def __init__(self) -> None:
        self._begun = b""  # a sequence whose end has not come yet; of a string only its kind
        self._half = False

    @property
    def is_whole(self) -> bool:
        return not self._begun and not self._half

    def feed(self, output: bytes) -> None:
        if not self._begun and output.isascii() and b"\x1b" not in output:
            self._half = False
            return
        text = self._begun + output
        last = text.rfind(b"\x1b")
        found = _UNFINISHED.match(text, last) if last >= 0 else None
        self._begun = b""
        if found:
            self._begun = b"\x1b" + found["string"] if found["string"] else found[0]
        self._half = _HALF_CHARACTER.search(text, max(len(text) - 3, 0)) is not None


class Raw:
    """Passes everything through; the status is the window's title."""

    takes_all = False  # a slow terminal holds the output back, up to the holder

    def __init__(self) -> None:
        self._size = (0, 0)
        self._parts: list[bytes] = []
        self._ground = Ground()
        self._last = b""

    def open(self, size: tuple[int, int]) -> bytes:
        """What stood here moves up, out of sight but not lost, and the program gets it all."""
        self._size = size
        self._ground = Ground()
        return b"\r\n" * (size[0] - 1) + b"\x1b[H\x1b[J"

    def resize(self, size: tuple[int, int]) -> bytes:
        self._size = size
        return b""

    def program_is(self, size: tuple[int, int]) -> None:
        """It has ours."""

    def asked_size(self) -> dict[str, object]:
        return {"rows": self._size[0], "cols": self._size[1]}

    def show_status(self, text: str) -> bytes | None:
        """What to write; None: not now."""
        return title(text) if self._ground.is_whole else None

    def feed(self, output: bytes) -> None:
        self._parts.append(output)

    def wait(self, _now: float) -> float | None:
        return 0.0 if self._parts else None

    def take(self, _now: float) -> bytes:
        if not self._parts:
            return b""
        output = b"".join(self._parts)
        self._parts.clear()
        self._ground.feed(output)
        self._last = output[-1:]
        return output

    def closing(self, ended: bool) -> bytes:
        """The next line is free: below all that is seen, or where the program ended."""
        if ended:
            return b"" if self._last == b"\n" else b"\r\n"
        return b"\x1b[999;1H\r\n"

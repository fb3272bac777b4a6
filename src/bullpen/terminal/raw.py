"""The program's bytes on the person's terminal, as they are."""

from bullpen.terminal.ground import Ground
from bullpen.terminal.title import title


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

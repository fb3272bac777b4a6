"""One line on standard error that the next one replaces; nothing when that is no terminal, or
one that cannot replace it."""

import os
import sys


class LiveLine:
    """`draw` it again and again, `wipe` it before anything else is written."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty() and os.environ.get("TERM") not in ("", "dumb")
        self._drawn = ""

    @property
    def columns(self) -> int:
        """What fits; the last column is left alone, where some terminals wrap."""
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
        except OSError:
            width = 0
        return (width or 80) - 1  # some terminals do not know their size

    def draw(self, text: str) -> None:
        """Show it, unless it is there."""
        if self.is_shown and text != self._drawn:
            self._write(f"\r\x1b[K{text}")
            self._drawn = text

    def wipe(self) -> None:
        """Take it away."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = ""

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self.is_shown = False  # the window was closed: the task goes on, and so do we

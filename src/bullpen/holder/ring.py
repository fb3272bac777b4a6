"""The latest output, and the terminal's modes where it begins."""

import re
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from bullpen.holder.modes import Modes

_LINE_OR_ESCAPE = re.compile(rb"\n|(?=\x1b)")


class Ring:
    """Keeps the last bytes; what is overwritten goes through `Modes` first, so that nothing it
    turned on is forgotten.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # Unlike a bytearray's, its pages come into being when they are written.
        self.buffer = mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)
        self.view = memoryview(self.buffer)
        self.at = 0  # where the next byte goes
        self.is_full = False
        self.modes = Modes()  # as they were where the oldest byte stands

    def write(self, data: memoryview) -> None:
        while data:
            end = min(self.at + len(data), self.size)
            count = end - self.at
            if self.is_full:
                self.modes.feed(self.buffer, self.at, end)
            self.view[self.at : end] = data[:count]
            self.at = end
            if end == self.size:
                self.at, self.is_full = 0, True
            data = data[count:]

    def last(self, count: int) -> bytes:
        """The end of it, at most so much."""
        return self._all()[-count:]

    def _all(self) -> bytes:
        if not self.is_full:
            return bytes(self.view[: self.at])
        return b"".join((self.view[self.at :], self.view[: self.at]))

    def replay(self) -> bytes:
        """What brings a fresh terminal to where the program's own is."""
        modes, output = self.modes, self._all()
        if modes.seen:  # begin where no sequence is cut in half
            match = _LINE_OR_ESCAPE.search(output)
            start = match.end() if match else 0
            modes = modes.copy()
            modes.feed(output, 0, start)
            output = output[start:]
        return modes.sequences() + without_queries(output)


# Questions to the terminal. Shown again, they would be answered again, and the answers
# typed into a program that did not ask.
_QUERIES = re.compile(
    rb"""
      \x1b\[ (?: [>=]? [0-9]* c              # device attributes
               | >  [0-9]* q                 # terminal's name and version
               | \? u                        # kitty keyboard flags
               | \?? [0-9;]* n               # status, cursor position, colour scheme
               | \?? [0-9;]* \$ p            # is this mode on?
               | (?: 1[1345689] | 2[01] ) (?: ;[0-9;]* )? t   # window reports
               | \? [0-9;]* S                # graphics
               | [01]? x                     # terminal parameters
             )
    | \x1b\] [0-9;]* (?: [0-9a-z] ; )? \? (?: \x07 | \x1b\\ )   # colours, clipboard
    | \x1bP [+$] q [^\x1b]* \x1b\\           # capabilities, settings
    | \x1bZ | \x05                           # who are you, in older words
    """,
    re.VERBOSE,
)


def without_queries(output: bytes) -> bytes:
    """The output with every question to the terminal taken out."""
    return _QUERIES.sub(b"", output)

"""The latest output, and the terminal's state where it begins."""

import re

from bullpen.holder.modes import Modes

# How much is dropped at a time: deleting at the front moves all that stays.
STEP = 1 << 16
_LINE_OR_ESCAPE = re.compile(rb"\n|(?=\x1b)")


class Ring:
    """Keeps the last bytes; what falls out goes through `Modes`, so that nothing it turned
    on is forgotten.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.buffer = bytearray()
        self.modes = Modes()  # as they were where the buffer begins

    def write(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > self.size + min(STEP, self.size):
            self._trim()

    def _trim(self) -> None:
        excess = len(self.buffer) - self.size
        if excess > 0:
            self.modes.feed(bytes(self.buffer[:excess]))
            del self.buffer[:excess]

    def replay(self) -> bytes:
        """What brings a fresh terminal to where the program's own is."""
        self._trim()
        modes, start = self.modes, 0
        if modes.seen:  # begin where no sequence is cut in half
            found = _LINE_OR_ESCAPE.search(self.buffer)
            start = found.end() if found else 0
            modes = modes.copy()
            modes.feed(bytes(self.buffer[:start]))
        return modes.sequences() + without_queries(bytes(self.buffer[start:]))


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

"""The end of a long output: all that a screen without history shows of it. Pure.

Plain lines scroll away except for the last ones, so the others need not be fed to the emulator.
A replay of 256 KB is shown several times as fast.
"""

import re

LEAST_BYTES = 1 << 13  # less is fed faster than looked at

_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_OTHER_SEQUENCE = re.compile(rb"\x1b(?!\[[0-9;:]*m)")
_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")  # eight-bit ones, in UTF-8
# Everything but controls other than line breaks, tabs, backspaces and escapes.
_TEXT = bytes([0x08, 0x09, 0x0A, 0x0D, 0x1B, *range(0x20, 0x7F), *range(0x80, 0x100)])
_REGION = re.compile(rb"\x1b\[([0-9;]*)r")


def last_screen(output: bytes, rows: int) -> bytes:
    """Output with the same outcome, for a screen of so many rows without a scroll region.

    It has to begin after a line break: what comes first may be the rest of a sequence.
    """
    last = len(output)
    for _ in range(rows + 1):
        last = output.rfind(b"\r\n", 0, last)
        if last < 0:
            return output
    # What follows the last line break is fed as it is: a piece of output often ends in a sequence.
    if not _is_plain(output[: output.rfind(b"\n") + 1]):
        return output
    # From the bottom row on, as many line breaks as there are rows scroll everything away.
    return _colours(output[:last]) + b"\x1b[%d;1H" % rows + output[last + 2 :]


def _is_plain(output: bytes) -> bool:
    """Whether it is only lines of text and colours."""
    return (
        not output.translate(None, _TEXT)
        and not _OTHER_SEQUENCE.search(output)
        and not (b"\xc2" in output and _CONTROL.search(output))
    )


def _colours(output: bytes) -> bytes:
    """The colours that are on at the end of the output."""
    begin = output.rfind(b"\x1b[0m")
    begin = max(begin, output.rfind(b"\x1b[m"), 0)
    return b"".join(_COLOUR.findall(output, begin))


class Region:
    """Whether a part of the screen scrolls alone, as far as output in pieces tells."""

    def __init__(self) -> None:
        self.is_set = False
        self._end = b""

    def feed(self, output: bytes) -> None:
        text = self._end + output
        self._end = text[-24:]
        if b"r" in text:
            for numbers in _REGION.findall(text):
                self.is_set = numbers.strip(b"0;") != b""

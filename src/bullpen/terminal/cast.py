"""A session as an asciinema file: version 2, a line of JSON for the header and each piece.

Pure: log bytes and timing lines in, lines out. The log has no sizes, so the header's size holds
for the whole recording.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Header:
    """What a player must know before it begins."""

    rows: int
    cols: int
    started: float | None
    title: str

    def to_line(self) -> str:
        fields: dict[str, object] = {"version": 2, "width": self.cols, "height": self.rows}
        if self.started is not None:
            fields["timestamp"] = int(self.started)
        return json.dumps({**fields, "title": self.title}) + "\n"


def events(read: Callable[[int], bytes], timing: Iterable[bytes]) -> Iterator[tuple[float, bytes]]:
    """The pieces of one log with the seconds since the one before; `read` gives so many bytes.

    Ends where one of the two does: a log that is written to has more bytes than lines.
    """
    for line in timing:
        seconds, _, size = line.partition(b" ")
        try:
            piece = read(int(size))
            yield max(float(seconds), 0.0), piece
        except ValueError:
            return  # cut off in the middle of a line
        if not piece and int(size):
            return


def cast(header: Header, pieces: Iterable[tuple[float, bytes]]) -> Iterator[str]:
    """The lines of the recording."""
    yield header.to_line()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    now = 0.0
    for seconds, piece in pieces:
        now += seconds
        text = decoder.decode(piece)
        if text:  # not if it was only half a character
            yield _line(now, text)
    if rest := decoder.decode(b"", final=True):
        yield _line(now, rest)


def _line(now: float, text: str) -> str:
    return json.dumps([round(now, 6), "o", text]) + "\n"

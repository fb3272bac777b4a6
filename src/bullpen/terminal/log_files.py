"""Reads the output log in order, also while it grows and is rotated. Writes nothing.

A full `output.log` is renamed to `output.log.1`, which replaces an older one.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 1 << 16


class LogFiles:
    """A place in a log; `read_on` gives what came since. The files may be renamed meanwhile."""

    def __init__(self, session: Path, name: str = "output.log") -> None:
        self._path = session / name
        self._older = session / f"{name}.1"
        self._file: BinaryIO | None = _open(self._older) or _open(self._path)

    def __enter__(self) -> "LogFiles":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def read_on(self) -> Iterator[bytes]:
        """All output that is there now and was not read yet."""
        while True:
            if self._file is None:
                self._file = _open(self._path)
                if self._file is None:
                    return
            while piece := self._file.read(PIECE_BYTES):
                yield piece
            following = self._following(self._file)
            if following is None:
                return
            # It was renamed after all had been written to it, and we may have read before.
            while piece := self._file.read(PIECE_BYTES):
                yield piece
            self._file.close()
            self._file = following

    def _following(self, current: BinaryIO) -> BinaryIO | None:
        """The file after this one; None: this is the one that is written to."""
        newest, older = _open(self._path), _open(self._older)
        if newest is None or _same(newest, current):
            chosen = None
        elif older is None or _same(older, current):
            chosen = newest
        else:  # rotated twice since: there is one between
            chosen = older
        for file in (newest, older):
            if file is not None and file is not chosen:
                file.close()
        return chosen


@contextlib.contextmanager
def open_with_timing(session: Path) -> Iterator[list[tuple[BinaryIO, BinaryIO]]]:
    """Each log with its timing, the older ones first; all of one moment."""
    paths = [session / f"output.{kind}{end}" for end in (".1", "") for kind in ("log", "timing")]
    with contextlib.ExitStack() as stack:
        while True:
            files = [_open(path, buffering=-1) for path in paths]
            for file in filter(None, files):
                stack.callback(file.close)
            if all(map(_is_still_at, files, paths)):
                break  # else they were rotated while we opened them
        older, newer = files[:2], files[2:]
        yield [(log, timing) for log, timing in (older, newer) if log and timing]


def _open(path: Path, buffering: int = 0) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=buffering)
    except FileNotFoundError:
        return None


def _is_still_at(file: BinaryIO | None, path: Path) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return file is None
    return file is not None and os.path.samestat(os.fstat(file.fileno()), status)


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))

"""Looking for messages in the transcripts that engines write. Reads files, writes none.

An agent may have put anything in their place: nothing here waits for a pipe, or reads without end.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

CLOCKS = 5.0  # seconds by which times of files and ours may differ
LINE_BYTES = 32 << 20
FILE_BYTES = 1 << 30


def find_told(
    files: Iterable[Path], ids: set[str], since: float, ids_in: Callable[[bytes], set[str]]
) -> set[str]:
    """Which of the ids are in files written since then; `told` says which a line proves."""
    shown: set[str] = set()
    for file in files:
        try:
            if file.stat().st_mtime < since - CLOCKS:
                continue
        except OSError:
            continue  # deleted in the meantime
        for line in read_lines(file):
            here = {id for id in ids - shown if id.encode() in line}
            shown |= here & ids_in(line) if here else set()
    return shown


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, as far as it can be read; one that is too long comes in pieces."""
    opened = open_file(path)
    if opened is None:
        return
    with opened as file:
        left = FILE_BYTES
        try:
            while left > 0 and (line := file.readline(LINE_BYTES)):
                left -= len(line)
                yield line
        except OSError:
            return


def open_file(path: Path, flags: int = 0) -> BinaryIO | None:
    """To be read; None if there is none, or what is there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")

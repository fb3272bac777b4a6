"""The log of the hub or of a director, as `hub logs` and `director logs` print it: a line of text
for each entry, or the entries as they are. Reads the file; asks nobody."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from bullpen.cli import output
from bullpen.errors import BullpenError, Kind

LOOK_AGAIN_SECONDS = 0.2
# Of every entry; what else it has is about this one. Texts of several lines stand below it.
OWN_FIELDS = ("timestamp", "level", "component", "logger", "message")
BELOW = ("exception", "stack")


def write_log(path: Path, *, start: str, follow: bool, lines: int, as_json: bool) -> None:
    """The last so many lines; with `follow` also what comes, until one interrupts it. `start` is
    the command after which there is a log."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise BullpenError(f"no log yet: {path}", hint=start, kind=Kind.NOT_FOUND) from error
    with file:
        for line in deque(file, lines):
            _write(line, as_json)
        for line in later_lines(file, path) if follow else ():
            _write(line, as_json)


def text_of(line: str) -> str:
    """`2026-11-17 14:02:11  info     serving · port 9199`; what is no entry as it is."""
    try:
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["timestamp"]).astimezone()
        head = f"{at:%F %T}  {entry['level']:<7}  {entry['message']}"
    except (ValueError, TypeError, KeyError):
        return output.printable(line)
    fields = [
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in entry.items()
        if name not in (*OWN_FIELDS, *BELOW) and value is not None
    ]
    first = output.printable(" · ".join([head, *fields]))
    below = [text for name in BELOW if name in entry for text in str(entry[name]).splitlines()]
    return "\n".join([first, *(f"    {output.printable(text)}" for text in below)])


def _write(line: str, as_json: bool) -> None:
    line = line.rstrip("\n")
    output.write(output.printable(line) if as_json else text_of(line))


def later_lines(file: TextIO, path: Path) -> Iterator[str]:
    """Whole lines as they are written; after a full file those of the next."""
    half = ""
    while True:
        piece = file.readline()
        if piece:
            half += piece
            if half.endswith("\n"):
                yield half
                half = ""
            continue
        sys.stdout.flush()
        time.sleep(LOOK_AGAIN_SECONDS)
        if _is_another(file, path):
            yield from file  # what came before it was full
            file.close()
            file = path.open(encoding="utf-8", errors="replace")


def _is_another(file: TextIO, path: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False

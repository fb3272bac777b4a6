"""The journal of a task agent, as `bullpen logs` prints it. Reads its file; asks no hub."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.text import printable

if TYPE_CHECKING:
    from bullpen.model.component import JournalEntry

LOOK_AGAIN_SECONDS = 0.5


def is_task_agent(session: Path) -> bool:
    """Whether that session is of an agent without a terminal."""
    from bullpen.files import read_object

    return read_object(session / "session.json").get("kind") == "headless"


def write_journal(session: Path, *, follow: bool, last: int | None, raw: bool) -> None:
    """Print what is in it, oldest first; with `follow` also what comes, until one interrupts it."""
    from bullpen.component.journal import FILE, read_journal

    path, seen = session / FILE, 0.0
    while True:
        entries = [entry for entry in read_journal(path) if entry.time > seen]
        for entry in entries if last is None else entries[len(entries) - min(last, len(entries)) :]:
            sys.stdout.write((entry.model_dump_json() if raw else text_of(entry)) + "\n")
        sys.stdout.flush()
        if not follow:
            return
        seen, last = entries[-1].time if entries else seen, None
        time.sleep(LOOK_AGAIN_SECONDS)


def text_of(entry: "JournalEntry") -> str:
    """`2026-11-17 14:02:11  info   a task is working · task t-91c2…`"""
    at = time.strftime("%F %T", time.localtime(entry.time))
    return printable(f"{at}  {entry.level:<5}  {' · '.join([entry.message, *_fields(entry)])}")


def _fields(entry: "JournalEntry") -> Iterator[str]:
    for name, value in (entry.model_extra or {}).items():
        if value is not None:
            yield f"{name} {value}"

"""Pages of a conversation's transcript, read from the engine's own file.

Called by `http/transcripts` and `last_answers`. Reads files that the agent can write: nothing waits
for a pipe or reads without end, and no link in the agent's session leads out of it. Blocks; runs in
the threads for agents' trees.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from bullpen.engines import Engine
from bullpen.engines.transcripts import LINE_BYTES, open_file
from bullpen.model.agent import Agent
from bullpen.model.transcript import Entry, Transcript

PAGE_ENTRIES = 200
PAGE_BYTES = 16 << 20  # of the file, for one page
TAIL_BYTES = 256 << 10  # that the last answer is looked for in


def read_page(
    engine: Engine, agent: Agent, session: Path, conversation: str, offset: int
) -> Transcript | None:
    """What was said and done from there on; None if the engine has no transcript of it."""
    file = _open_latest(engine, agent, session, conversation)
    if file is None:
        return None
    entries: dict[object, Entry] = {}
    with file:
        end, more = _read(engine, file, offset, entries)
    return Transcript(
        conversation=conversation, entries=tuple(entries.values()), offset=end, more=more
    )


def read_last_answer(engine: Engine, agent: Agent, session: Path) -> str:
    """What it said last, if that is near the end of its transcript; else nothing."""
    file = _open_latest(engine, agent, session, agent.conversation)
    if file is None:
        return ""
    with file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).split(b"\n")
    for line in reversed(lines):
        answers = [entry.text for entry in engine.read_entries(line) if entry.kind == "answer"]
        if answers:
            return answers[-1]
    return ""


def _open_latest(engine: Engine, agent: Agent, session: Path, conversation: str) -> BinaryIO | None:
    path = _latest(engine.conversation_files(agent, conversation))
    file = open_file(path) if path is not None else None
    is_own = Path(agent.state_files).is_relative_to(session)
    if file is not None and is_own and not _real_path(file).is_relative_to(session.resolve()):
        # An agent in a sandbox may link to what only the hub can read.
        file.close()
        return None
    return file


def _real_path(file: BinaryIO) -> Path:
    """Where it lies, wherever links led from. Of the open file: a name may lead elsewhere by
    now."""
    by_number = Path(f"/proc/self/fd/{file.fileno()}")  # Linux
    return Path(os.path.realpath(by_number if by_number.exists() else file.name))


def _latest(files: Iterable[Path]) -> Path | None:
    """A conversation that was resumed elsewhere may have two."""
    return max((file for file in files if file.is_file()), key=_written, default=None)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # deleted in the meantime
        return 0.0


def _read(
    engine: Engine, file: BinaryIO, offset: int, entries: dict[object, Entry]
) -> tuple[int, bool]:
    """Where the page ends, and whether there is more. A line that is still being written is left
    for the next page."""
    size = file.seek(0, 2)
    at = file.seek(offset if offset <= size else 0)  # it was written anew
    last = at + PAGE_BYTES
    while at < last and len(entries) < PAGE_ENTRIES:
        line = file.readline(LINE_BYTES)
        if not line.endswith(b"\n") and len(line) < LINE_BYTES:
            return at, False
        at += len(line)
        for number, entry in enumerate(engine.read_entries(line)):
            entries[(entry.kind, entry.key, number) if entry.key else (at, number)] = entry
    return at, True

"""The journal of a component: its last life-cycle entries, shown as `log` in its `/status`.

Written by `component/lifecycle`, `component/register` and `hub/components`: started, ready,
registered, draining. Each entry is logged, too. A journal with a file outlives its process: task
agents have one, which `bullpen logs` reads. Never holds what a model wrote, and no credentials.
"""

import contextlib
import logging
import os
import time
from collections import deque
from pathlib import Path

from pydantic import ValidationError

from bullpen.component.logs import LEVELS
from bullpen.component.redact import Redactor
from bullpen.files import write_atomically
from bullpen.model.component import JournalEntry, Level

ENTRIES = 1000
FILE = "journal.jsonl"  # in the session of a task agent
LARGEST_BYTES = 4 << 20  # of a file that is read; ours are far smaller


class Journal:
    """The entries of one component; the oldest are dropped. `agent`: whose it is, if one log has
    several."""

    def __init__(self, logger: logging.Logger, agent: str = "", path: Path | None = None) -> None:
        self._logger = logger
        self._agent = agent
        self._path = path
        self._entries: deque[JournalEntry] = deque(maxlen=ENTRIES)
        self._unkept = 0  # lines of the file that are beyond the last entries
        self._redactor = Redactor()

    @classmethod
    def opened(cls, logger: logging.Logger, agent: str, path: Path) -> "Journal":
        """With the entries that are in its file. Reads the disk."""
        journal = cls(logger, agent, path)
        journal._entries.extend(read_journal(path))
        journal._rewrite()
        return journal

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Add an entry, and log it."""
        redact = self._redactor
        shown = {name: redact.field(name, value) for name, value in fields.items()}
        entry = JournalEntry.model_validate(
            {**shown, "time": time.time(), "level": level, "message": redact.text(message)}
        )
        self._entries.append(entry)
        self._keep(entry)
        # In one field: the log file has fields of its own.
        extra = {"agent": self._agent} if self._agent else {}
        self._logger.log(
            LEVELS[level], message, extra={**extra, "about": fields} if fields else extra
        )

    def entries(self) -> tuple[JournalEntry, ...]:
        """Oldest first."""
        return tuple(self._entries)

    def _keep(self, entry: JournalEntry) -> None:
        """A full disk costs the line in the file, and nothing else."""
        if self._path is None:
            return
        self._unkept += 1
        if self._unkept > ENTRIES:
            self._rewrite()
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "wb") as file:
                file.write(entry.model_dump_json().encode() + b"\n")

    def _rewrite(self) -> None:
        """The file with the last entries alone."""
        if self._path is None or not self._entries:
            return
        lines = "".join(entry.model_dump_json() + "\n" for entry in self._entries)
        with contextlib.suppress(OSError):
            write_atomically(self._path, lines, mode=0o600)
        self._unkept = 0


def read_journal(path: Path) -> list[JournalEntry]:
    """The entries of that file, oldest first; a line that is none is left out."""
    try:
        with path.open("rb") as file:
            lines = file.read(LARGEST_BYTES).splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        with contextlib.suppress(ValidationError):
            entries.append(JournalEntry.model_validate_json(line))
    return entries

"""The last things that happened in the life of a component, for its `/status`.

Started, ready, registered, told to leave: what a person looks for first. Kept in memory, and
logged, too. Never what a model wrote, and without credentials.
"""

import logging
import time
from collections import deque

from bullpen.component.redact import Redactor
from bullpen.model.component import Entry, Level

ENTRIES = 1000

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class Journal:
    """The entries of one component."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._entries: deque[Entry] = deque(maxlen=ENTRIES)
        self._redactor = Redactor()

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Add one; it is logged as well."""
        redact = self._redactor
        shown = {name: redact.field(name, value) for name, value in fields.items()}
        entry = {**shown, "time": time.time(), "level": level, "message": redact.text(message)}
        self._entries.append(Entry.model_validate(entry))
        # In one field: the log has names of its own.
        self._logger.log(_LEVELS[level], message, extra={"about": fields} if fields else None)

    def entries(self) -> tuple[Entry, ...]:
        """Oldest first."""
        return tuple(self._entries)

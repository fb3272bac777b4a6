"""One transaction of the writer: events and other changes of many callers, committed together.

Called by `store`, in the writer's thread. Numbers events and writes their rows. Never begins or
ends the transaction itself.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from bullpen.hub.store.events import COLUMNS, EventRow, event_of, find_last_id, row_of
from bullpen.model.event import Draft, Event

KEYS_AT_ONCE = 500  # SQLite limits the parameters of one statement
ROWS_AT_ONCE = 128

# OR ROLLBACK: a row that does not fit fails the group anyway (the rows were checked), and
# SQLite then keeps no journal of its own for the statement.
INSERT = "INSERT OR ROLLBACK INTO events (id, time, kind, agent, data, key) VALUES "
NOTE_LATEST = "INSERT INTO latest (kind, agent, first, last) VALUES "
NOTE_AGAIN = " ON CONFLICT (kind, agent) DO UPDATE SET last = excluded.last"


class CommitGroup:
    """What is committed together. Events are numbered at once and written as late as possible,
    many with one statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.events: list[Event] = []
        self.last_id = find_last_id(connection)
        self._keys: dict[str, Event] = {}
        self._rows: list[tuple[int, float, str, str, str, str | None]] = []

    def add(self, rows: Sequence[EventRow]) -> list[Event]:
        """Number and remember them. A row whose key is there already gives the event that has
        it, and adds nothing."""
        self._look_up(key for _, _, key in rows if key)
        events = []
        for draft, data, key in rows:
            event = self._keys.get(key) if key else None
            if event is None:
                self.last_id += 1
                event = Event(self.last_id, draft.time, draft.kind, draft.agent, draft.data)
                self._rows.append((event.id, event.time, event.kind, event.agent, data, key))
                self.events.append(event)
                if key:
                    self._keys[key] = event
            events.append(event)
        return events

    def write_rows(self, last_id: int | None = None) -> None:
        """Write the rows that are remembered, up to that id. Afterwards SQL sees them."""
        rows, self._rows = self._rows, []
        if last_id is not None:
            self._rows = [row for row in rows if row[0] > last_id]
            rows = [row for row in rows if row[0] <= last_id]
        if not rows:
            return
        _insert(self.connection, INSERT, rows)
        spans: dict[tuple[str, str], tuple[int, int]] = {}
        for number, _, kind, agent, _, _ in rows:
            first, _ = spans.get((kind, agent), (number, number))
            spans[kind, agent] = (first, number)
        latest = [(*names, *span) for names, span in spans.items()]
        _insert(self.connection, NOTE_LATEST, latest, NOTE_AGAIN)

    def forget_after(self, last_id: int) -> None:
        """Drop what a function that failed had added since."""
        self.last_id = last_id
        self._rows = [row for row in self._rows if row[0] <= last_id]
        while self.events and self.events[-1].id > last_id:
            self.events.pop()
        self._keys = {key: event for key, event in self._keys.items() if event.id <= last_id}

    def _look_up(self, keys: Iterable[str]) -> None:
        """Learn which of the keys are there already."""
        new = [key for key in dict.fromkeys(keys) if key not in self._keys]
        for start in range(0, len(new), KEYS_AT_ONCE):
            part = new[start : start + KEYS_AT_ONCE]
            marks = ",".join("?" * len(part))
            select = f"SELECT {COLUMNS}, key FROM events WHERE key IN ({marks})"
            for *columns, key in self.connection.execute(select, part):
                self._keys[key] = event_of(columns)


class Transaction:
    """What one function given to `Store.write` works with. All that it does is kept, or nothing."""

    def __init__(self, group: CommitGroup) -> None:
        self._group = group
        self._last_id_before = group.last_id
        self._has_savepoint = False

    @property
    def connection(self) -> sqlite3.Connection:
        """For SQL, which sees the events appended so far. Must not begin or end transactions."""
        if not self._has_savepoint:
            # Only now: a function that only appends events needs no statements of its own.
            self._group.write_rows(self._last_id_before)
            self._group.connection.execute("SAVEPOINT one_function")
            self._has_savepoint = True
        self._group.write_rows()
        return self._group.connection

    def append(self, *drafts: Draft) -> list[Event]:
        """Events that stand and fall with the rest. A draft whose key is there already gives the
        event that has it, and adds nothing."""
        return self.add_rows([row_of(draft) for draft in drafts])

    def add_rows(self, rows: Sequence[EventRow]) -> list[Event]:
        """The same, for drafts that are encoded already."""
        return self._group.add(rows)

    def keep(self) -> None:
        """Called by the store when the function has returned."""
        if self._has_savepoint:
            self._group.connection.execute("RELEASE one_function")

    def take_back(self) -> None:
        """Called by the store when the function has raised."""
        if self._has_savepoint:
            self._group.connection.execute("ROLLBACK TO one_function")
            self._group.connection.execute("RELEASE one_function")
        self._group.forget_after(self._last_id_before)


def _insert(
    connection: sqlite3.Connection, begin: str, rows: Sequence[Sequence[Any]], end: str = ""
) -> None:
    """Many rows with few statements: half the time of `executemany`, which also lets another
    thread in at each row and may wait for its return. Powers of two, so that the few different
    statements stay prepared."""
    marks = f"({','.join('?' * len(rows[0]))})"
    start = 0
    while start < len(rows):
        count = min(ROWS_AT_ONCE, 1 << (len(rows) - start).bit_length() - 1)
        values = [value for row in rows[start : start + count] for value in row]
        connection.execute(f"{begin}{','.join([marks] * count)}{end}", values)
        start += count

"""The event log in SQL: what its rows hold, how they are numbered, written together, found and
deleted. Called inside transactions that others begin and end (`store`). Nothing here knows what
an event means, except that the last word on an agent's life outlives the others' retention.
"""

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from bullpen.model.event import KINDS, Draft, Event

MOST_DATA = 16 << 20  # characters of one event; far above what the API lets in
EXPIRE_ROWS = 500  # looked at in one unit, so that appends get in between
KEYS_AT_ONCE = 500  # SQLite limits the parameters of one statement
ROWS_AT_ONCE = 128
LARGEST_ID = 2**63 - 1

# What is true of an agent that has been quiet for longer than the retention.
KEPT_KINDS = ("agent.started", "agent.state", "agent.stopped")

COLUMNS = "id, time, kind, agent, data"
# OR ROLLBACK: a row that does not fit fails the group anyway (the rows were checked), and
# SQLite then keeps no journal of its own for the statement.
INSERT = "INSERT OR ROLLBACK INTO events (id, time, kind, agent, data, key) VALUES "
NOTE_LATEST = "INSERT INTO latest (kind, agent, first, last) VALUES "
NOTE_AGAIN = " ON CONFLICT (kind, agent) DO UPDATE SET last = excluded.last"
LAST_ID = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
LAST_OF = (
    "SELECT events.id, time, events.kind, events.agent, data"
    " FROM latest JOIN events ON events.id = latest.last WHERE latest.kind = ?"
)

# ASCII, so that whatever an agent printed (lone surrogates too) can be stored and sent.
encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


Row = tuple[Draft, str, str | None]  # with its data encoded, and its key or None


class Group:
    """What one transaction holds so far. Rows are numbered at once and written together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.events: list[Event] = []
        self.keys: dict[str, Event] = {}
        self.last_id = find_last_id(connection)
        self._rows: list[tuple[int, float, str, str, str, str | None]] = []

    def look_up(self, keys: Iterable[str]) -> None:
        """Learn which of the keys are there already."""
        new = [key for key in dict.fromkeys(keys) if key not in self.keys]
        for start in range(0, len(new), KEYS_AT_ONCE):
            part = new[start : start + KEYS_AT_ONCE]
            marks = ",".join("?" * len(part))
            select = f"SELECT {COLUMNS}, key FROM events WHERE key IN ({marks})"
            for *columns, key in self.connection.execute(select, part):
                self.keys[key] = event_of(columns)

    def add(self, rows: Iterable[Row]) -> list[Event]:
        """Number and remember them; keys must have been looked up."""
        events = []
        for draft, data, key in rows:
            event = self.keys.get(key) if key else None
            if event is None:
                self.last_id += 1
                event = Event(self.last_id, draft.time, draft.kind, draft.agent, draft.data)
                self._rows.append((event.id, event.time, event.kind, event.agent, data, key))
                self.events.append(event)
                if key:
                    self.keys[key] = event
            events.append(event)
        return events

    def flush(self) -> None:
        """Write what is remembered. Afterwards SQL sees it."""
        rows, self._rows = self._rows, []
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
        """Drop what a unit that failed had added since."""
        self.last_id = last_id
        self._rows.clear()
        while self.events and self.events[-1].id > last_id:
            self.events.pop()
        self.keys = {key: event for key, event in self.keys.items() if event.id <= last_id}


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


def row_of(draft: Draft) -> Row:
    """Checked here, in the caller's thread: what the writer gets can be written."""
    if draft.kind not in KINDS:
        raise ValueError(f"{draft.kind!r} is no kind of event")
    if not math.isfinite(draft.time):
        raise ValueError(f"an event cannot be of time {draft.time}")
    for name in (draft.agent, draft.key):
        name.encode()  # raises for lone surrogates, as SQLite would
    data = encode(draft.data)
    if len(data) > MOST_DATA:
        raise ValueError(f"an event of {len(data)} characters is too big")
    return draft, data, draft.key or None


def event_of(row: Sequence[Any]) -> Event:
    """From the columns of `COLUMNS`."""
    return Event(row[0], row[1], row[2], row[3], json.loads(row[4]))


def find_last_id(connection: sqlite3.Connection) -> int:
    """The highest that was ever given; 0 before the first."""
    row = connection.execute(LAST_ID).fetchone()
    return row[0] if row else 0


def list_after(
    connection: sqlite3.Connection,
    seen: int,
    limit: int,
    kinds: Collection[str] | None,
    agent: str | None,
    most_bytes: int,
) -> list[Event]:
    """The next events after the id `seen`. `latest` knows where the first and the last of a kind
    are, so a rare one is not looked for in the whole log."""
    where, values = _where(kinds, agent)
    first, last = seen + 1, LARGEST_ID
    if where:
        bounds = f"SELECT min(first), max(last) FROM latest WHERE TRUE {where}"
        lowest, highest = connection.execute(bounds, values).fetchone()
        if lowest is None:
            return []
        first, last = max(first, lowest), highest
    if first > last:
        return []
    select = f"SELECT {COLUMNS} FROM events WHERE id BETWEEN ? AND ? {where}"
    rows = connection.execute(
        f"{select} ORDER BY id LIMIT ?", (first, last, *values, min(limit, LARGEST_ID))
    )
    return [event_of(row) for row in _page(rows, most_bytes)]


def _where(kinds: Collection[str] | None, agent: str | None) -> tuple[str, list[str]]:
    """Conditions for `events` and `latest` alike."""
    where, values = "", []
    if agent is not None:
        where, values = "AND agent = ?", [agent]
    if kinds is not None:
        where += f" AND kind IN ({','.join('?' * len(kinds))})"
        values += kinds
    return where, values


def _page(rows: Iterable[Sequence[Any]], most_bytes: int) -> Iterator[Sequence[Any]]:
    size = 0
    for row in rows:
        yield row
        size += len(row[4])
        if most_bytes and size >= most_bytes:
            return


def expire_next(connection: sqlite3.Connection, seen: int, before: float) -> tuple[int, int | None]:
    """Of the next stretch: how many were deleted, and its last id; None if nothing is old."""
    last, oldest = connection.execute(
        "SELECT max(id), min(time) FROM"
        " (SELECT id, time FROM events WHERE id > ? ORDER BY id LIMIT ?)",
        (seen, EXPIRE_ROWS),
    ).fetchone()
    if last is None or oldest >= before:
        return 0, None
    marks = ",".join("?" * len(KEPT_KINDS))
    done = connection.execute(
        "DELETE FROM events WHERE id > ? AND id <= ? AND time < ?"
        f" AND id NOT IN (SELECT last FROM latest WHERE kind IN ({marks}))",
        (seen, last, before, *KEPT_KINDS),
    )
    return done.rowcount, last

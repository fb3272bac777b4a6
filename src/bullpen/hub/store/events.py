"""The event log in SQL: what a row holds, and how events are looked for.

The functions that return a `Query` are for `Store.read`: `await store.read(find_by_key("k"))`.
Called by all parts of the hub that look into the log. Never writes; `transaction` does.
Knows nothing of what an event means.
"""

import contextlib
import itertools
import json
import math
import sqlite3
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from bullpen.hub.store.event_index import find_end, find_ids, name_of_agent, name_of_kind
from bullpen.model.event import KINDS, Draft, Event

T = TypeVar("T")
Query: TypeAlias = Callable[[sqlite3.Connection], T]

MOST_DATA = 16 << 20  # characters of one event; far above what the API lets in
LARGEST_ID = 2**63 - 1

IDS_AT_ONCE = 100

COLUMNS = "id, time, kind, agent, data"
BETWEEN = f"SELECT {COLUMNS} FROM events WHERE id BETWEEN ? AND ?"
LAST_ID = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
LAST_OF = (
    "SELECT events.id, time, events.kind, events.agent, data"
    " FROM latest JOIN events ON events.id = latest.last WHERE latest.kind = ?"
)

# ASCII, so that whatever an agent printed (lone surrogates too) can be stored and sent.
encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

EventRow = tuple[Draft, str, str | None]  # with its data encoded, and its key or None


def row_of(draft: Draft) -> EventRow:
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


# ── queries ──


def find_last_id(connection: sqlite3.Connection) -> int:
    """The highest id that was ever given; 0 before the first. Its event may have expired."""
    row = connection.execute(LAST_ID).fetchone()
    return row[0] if row else 0


def find_by_key(key: str) -> Query[Event | None]:
    """The event that was made with that key."""
    return lambda connection: _find(
        connection, f"SELECT {COLUMNS} FROM events WHERE key = ?", (key,)
    )


def find_last(agent: str, kind: str) -> Query[Event | None]:
    """The latest event of that kind about that agent, if it is still in the log."""
    return lambda connection: _find(connection, f"{LAST_OF} AND latest.agent = ?", (kind, agent))


def list_last_states(connection: sqlite3.Connection) -> dict[str, Event]:
    """The latest `agent.state` of each agent."""
    rows = connection.execute(LAST_OF, ("agent.state",)).fetchall()
    return {event.agent: event for event in map(event_of, rows)}


def list_after(
    last_id: int,
    limit: int,
    kinds: Collection[str] | None = None,
    agent: str | None = None,
    most_bytes: int = 0,
) -> Query[list[Event]]:
    """The next events after that id, at most `limit`; an empty list is the end. With `most_bytes`
    a page of big events is shorter, but never empty for that."""
    return lambda connection: _list_after(connection, last_id, limit, kinds, agent, most_bytes)


def list_before(last_id: int, limit: int, agent: str | None = None) -> Query[list[Event]]:
    """The newest events below that id, the newest first, at most `limit`."""

    def read(connection: sqlite3.Connection) -> list[Event]:
        newest = _rows(connection, 1, last_id - 1, None, agent, newest_first=True)
        with contextlib.closing(newest) as rows:
            return list(map(event_of, itertools.islice(rows, limit)))

    return read


def _find(connection: sqlite3.Connection, select: str, values: Sequence[str]) -> Event | None:
    row = connection.execute(select, values).fetchone()
    return None if row is None else event_of(row)


def _list_after(
    connection: sqlite3.Connection,
    last_id: int,
    limit: int,
    kinds: Collection[str] | None,
    agent: str | None,
    most_bytes: int,
) -> list[Event]:
    if limit < 1 or (kinds is not None and not kinds):
        return []
    with contextlib.closing(_rows(connection, last_id + 1, LARGEST_ID, kinds, agent)) as rows:
        page = _page(itertools.islice(rows, min(limit, sys.maxsize)), most_bytes)
        return [event_of(row) for row in page]


def walk_back(
    connection: sqlite3.Connection, kinds: Collection[str], agent: str | None = None, first: int = 1
) -> Iterator[Event]:
    """The events of these kinds, the newest first, down to the id `first`. Within `Store.read`:
    what the caller does not ask for is not read."""
    rows = _rows(connection, first, LARGEST_ID, kinds, agent, newest_first=True)
    return map(event_of, rows)


def _rows(
    connection: sqlite3.Connection,
    first: int,
    last: int,
    kinds: Collection[str] | None,
    agent: str | None,
    *,
    newest_first: bool = False,
) -> Generator[Sequence[Any], None, None]:
    """`latest` knows where the first and the last of a kind are, the index where those between
    are: a rare one is not looked for in the whole log."""
    if first > last:
        return
    where, values = _where(kinds, agent)
    order = "DESC" if newest_first else "ASC"
    if not where:
        yield from connection.execute(f"{BETWEEN} ORDER BY id {order}", (first, last))
        return
    bounds = f"SELECT min(first), max(last) FROM latest WHERE TRUE {where}"
    lowest, highest = connection.execute(bounds, values).fetchone()
    if lowest is None:
        return
    first, last = max(first, lowest), min(last, highest)
    if first > last:
        return
    end = find_end(connection)
    scan = f"{BETWEEN} {where} ORDER BY id {order}"
    behind = (max(first, end), last, *values)
    names = [name_of_agent(agent)] if agent is not None else map(name_of_kind, kinds or ())
    ids = find_ids(connection, names, first, min(last, end - 1), newest_first=newest_first)
    if newest_first:
        yield from connection.execute(scan, behind)
    while some := list(itertools.islice(ids, IDS_AT_ONCE)):
        marks = ",".join("?" * len(some))
        pick = f"SELECT {COLUMNS} FROM events WHERE id IN ({marks}) {where} ORDER BY id {order}"
        yield from connection.execute(pick, (*some, *values))
    if not newest_first:
        yield from connection.execute(scan, behind)


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

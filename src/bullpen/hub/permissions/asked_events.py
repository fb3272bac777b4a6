"""Which events of the log tell of approvals that still matter: those that are open, and the last
that ended. Called by `approvals` when the hub starts. Reads only; knows the keys of the events,
not what an approval is.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator

from bullpen.hub.store.events import Query, event_of, find_by_key, list_after, walk_back
from bullpen.model.event import Event

ASKED, ENDED = "approval.asked", "approval.answered"
REVIEWED = "permission.reviewed"
# The highest number is among these: approvals of one moment may be stored in another order.
NEWEST = 100
PAGE = 1000

OPEN = (
    "SELECT id, time, kind, agent, data FROM events AS asked"
    " WHERE key >= 'ask:' AND key < 'ask;' AND NOT EXISTS"
    " (SELECT 1 FROM events WHERE key = 'approval:' || substr(asked.key, 5))"
)


def asked_key(key: str) -> str:
    """Of the event that opens the approval of that run and request."""
    return f"ask:{key}"


def ended_key(key: str) -> str:
    """Of the event that ends it, whichever comes first."""
    return f"approval:{key}"


def list_asked(kept: int) -> Query[list[Event]]:
    """All events of approvals that are open and of the last `kept` that ended, in order."""
    return lambda connection: _list_asked(connection, kept)


def _list_asked(connection: sqlite3.Connection, kept: int) -> list[Event]:
    ended = list(itertools.islice(walk_back(connection, (ENDED,)), kept))
    newest = list(itertools.islice(walk_back(connection, (ASKED,)), NEWEST))
    events = {row[0]: event_of(row) for row in connection.execute(OPEN)}
    events |= _by_id(newest)
    events |= _by_id(_others(connection, newest, ended_key))
    events |= _by_id(_others(connection, ended, asked_key)) | _by_id(ended)
    if events:
        events |= _by_id(_reviews(connection, min(events)))
    return [events[id] for id in sorted(events)]


def _by_id(events: Iterable[Event]) -> dict[int, Event]:
    return {event.id: event for event in events}


def _others(
    connection: sqlite3.Connection, events: Iterable[Event], key_of: Callable[[str], str]
) -> Iterator[Event]:
    """The other end of each of these approvals, where there is one."""
    for event in events:
        if "run" in event.data and "ask" in event.data:
            other = find_by_key(key_of(f"{event.data['run']}:{event.data['ask']}"))(connection)
            if other is not None:
                yield other


def _reviews(connection: sqlite3.Connection, first: int) -> Iterator[Event]:
    """What the reviewer said of any since then."""
    seen = first
    while events := list_after(seen, PAGE, kinds=(REVIEWED,))(connection):
        yield from events
        seen = events[-1].id

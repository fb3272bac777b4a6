"""Where the events of one agent, or of one kind, lie in the log: rows of the table `event_index`.

Written by `store` in the writer's thread, one block of ids at a time, when the block is full;
read by `events`. A row says which events of its block are of one name, in two bytes each. What
lies behind the last full block is not in it: readers look there row by row.

An index of SQLite's own would cost three times the whole insert at 500 agents: each event dirties
a page of its own there. Here a thousand events share the page of their agent.
"""

import heapq
import sqlite3
from array import array
from collections.abc import Iterable, Iterator

BLOCK = 4096  # ids; an offset in a block has two bytes

NAMES = "SELECT id, kind, agent FROM events WHERE id >= ? AND id < ?"
PUT = "INSERT OR REPLACE INTO event_index (name, block, ids) VALUES (?, ?, ?)"
PUT_END = "INSERT OR REPLACE INTO event_index_end (id, event) VALUES (1, ?)"
FIND = "SELECT block, ids FROM event_index WHERE name = ? AND block BETWEEN ? AND ? ORDER BY block"


def name_of_agent(agent: str) -> str:
    """Of the rows that say where its events are."""
    return f"agent {agent}"


def name_of_kind(kind: str) -> str:
    """Of the rows that say where such events are."""
    return f"kind {kind}"


def find_end(connection: sqlite3.Connection) -> int:
    """The lowest id that the index does not know yet."""
    row = connection.execute("SELECT event FROM event_index_end").fetchone()
    return row[0] if row else 0


def write_block(connection: sqlite3.Connection, first: int) -> None:
    """Add the block that begins at `first`, where the index ends. Within a transaction."""
    offsets: dict[str, array[int]] = {}
    for id, kind, agent in connection.execute(NAMES, (first, first + BLOCK)):
        for name in (name_of_kind(kind), name_of_agent(agent)):
            offsets.setdefault(name, array("H")).append(id - first)
    # In order: each page of the table is looked for once.
    for name in sorted(offsets):
        connection.execute(PUT, (name, first // BLOCK, offsets[name].tobytes()))
    connection.execute(PUT_END, (first + BLOCK,))


def find_ids(
    connection: sqlite3.Connection,
    names: Iterable[str],
    first: int,
    last: int,
    *,
    newest_first: bool = False,
) -> Iterator[int]:
    """The ids of those names from `first` to `last`; events that have expired may be among them.
    Reads one block after the other, as far as the caller goes."""
    each = [_ids_of(connection, name, first, last, newest_first) for name in names]
    return heapq.merge(*each, reverse=newest_first)


def _ids_of(
    connection: sqlite3.Connection, name: str, first: int, last: int, newest_first: bool
) -> Iterator[int]:
    order = " DESC" if newest_first else ""
    blocks = connection.execute(FIND + order, (name, first // BLOCK, last // BLOCK))
    for block, data in blocks:
        offsets = array("H", data)
        for offset in reversed(offsets) if newest_first else offsets:
            if first <= block * BLOCK + offset <= last:
                yield block * BLOCK + offset

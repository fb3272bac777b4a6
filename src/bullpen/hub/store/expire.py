"""Deletes old events, and what other tables of the store say of events that are gone; gives the
room back to the disk. Called by `hub/upkeep` once a day, in small steps: others write in between.

Never deletes the last word on how an agent is that is still there, however old it is.
"""

import json
from collections.abc import Collection
from functools import partial

from bullpen.hub.store.event_index import BLOCK
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction

EXPIRE_ROWS = 500  # looked at in one write, so that others get in between
SHRINK_PAGES = 200  # of 4 KiB, for the same reason

# What is true of an agent that has been quiet for longer than the retention.
KEPT_KINDS = ("agent.started", "agent.state", "agent.stopped")

# A clock that was set back may have left an earlier event of the same kind.
FORGET_LATEST = (
    "DELETE FROM latest WHERE (kind, agent) IN (SELECT kind, agent FROM latest AS each"
    " WHERE last < ? AND NOT EXISTS (SELECT 1 FROM events WHERE id BETWEEN each.first AND each.last"
    " AND kind = each.kind AND agent = each.agent) LIMIT ?)"
)
FORGET_BLOCKS = (
    "DELETE FROM event_index WHERE (name, block) IN (SELECT name, block FROM event_index"
    " WHERE block < ? AND block NOT IN (SELECT id / ? FROM events WHERE id < ?) LIMIT ?)"
)


async def expire(
    store: Store, older_than_seconds: float, now: float, agents: Collection[str] | None = None
) -> int:
    """Delete events of before; how many. Ends at the first stretch of the log with nothing old in
    it: after a clock that ran ahead was set back, events stay longer, never shorter. `agents`:
    those that are there; None: all that the log knows."""
    before, seen, deleted = now - older_than_seconds, 0, 0
    known = None if agents is None else json.dumps(sorted(agents))
    while True:
        count, end = await store.write(partial(_expire_next, seen=seen, before=before, known=known))
        if end is None:
            break
        deleted, seen = deleted + count, end
    await _repeat(store, FORGET_LATEST, (seen + 1,))
    block = (seen + 1) // BLOCK
    await _repeat(store, FORGET_BLOCKS, (block, BLOCK, block * BLOCK))
    return deleted


async def shrink(store: Store) -> None:
    """Give pages that nobody needs back to the disk; a database that was made by an earlier version
    keeps them, and uses them again."""
    while await store.write(_shrink_next):
        pass


def _shrink_next(transaction: Transaction) -> bool:
    """Whether there is more."""
    connection = transaction.connection
    before: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    connection.execute(f"PRAGMA incremental_vacuum({SHRINK_PAGES})").fetchall()
    left: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return 0 < left < before


async def _repeat(store: Store, delete: str, values: tuple[int, ...]) -> None:
    """That statement, so many rows at a time, until it finds none."""

    def some(transaction: Transaction) -> int:
        return transaction.connection.execute(delete, (*values, EXPIRE_ROWS)).rowcount

    while await store.write(some):
        pass


def _expire_next(
    transaction: Transaction, seen: int, before: float, known: str | None
) -> tuple[int, int | None]:
    """Of the next stretch: how many were deleted, and its last id; None if nothing is old."""
    connection = transaction.connection
    last, oldest = connection.execute(
        "SELECT max(id), min(time) FROM"
        " (SELECT id, time FROM events WHERE id > ? ORDER BY id LIMIT ?)",
        (seen, EXPIRE_ROWS),
    ).fetchone()
    if last is None or oldest >= before:
        return 0, None
    marks = ",".join("?" * len(KEPT_KINDS))
    kept, values = f"SELECT last FROM latest WHERE kind IN ({marks})", [*KEPT_KINDS]
    if known is not None:
        kept, values = f"{kept} AND agent IN (SELECT value FROM json_each(?))", [*values, known]
    done = connection.execute(
        f"DELETE FROM events WHERE id > ? AND id <= ? AND time < ? AND id NOT IN ({kept})",
        (seen, last, before, *values),
    )
    return done.rowcount, last

"""The queues of events: one per agent, and one for `root`. Durable, at least once.

Called by `children` (puts), `hub/mcp` (waits for the calling agent) and `http/tree` (shows them to
the owner). An event is returned again until its receiver has acknowledged it: by naming its id, or
a later one, when it asks for the next. Several waiters of one agent all get the event. Never
decides what is told to whom.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.child_event import ChildEvent
from bullpen.model.message import ROOT

COLUMNS = "id, kind, sender, at, data"
INSERT = (
    "INSERT OR IGNORE INTO tree_events (recipient, born, kind, sender, at, data, key, acked)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
MOST_KEPT = 1000  # of one queue, of those that were acknowledged: the newest stay
MOST_OF_SENDER = 200  # of one queue, acknowledged or not: who tells more pushes out its own only
EXPIRE = (
    "DELETE FROM tree_events WHERE recipient = ? AND (acked = 1 OR recipient = 'root') AND id <="
    " (SELECT id FROM tree_events WHERE recipient = ?"
    f" ORDER BY id DESC LIMIT 1 OFFSET {MOST_KEPT})"
)
EXPIRE_SENDER = (
    "DELETE FROM tree_events WHERE recipient = ? AND sender = ? AND id <="
    " (SELECT id FROM tree_events WHERE recipient = ? AND sender = ?"
    f" ORDER BY id DESC LIMIT 1 OFFSET {MOST_OF_SENDER})"
)
ACKNOWLEDGE = (
    "UPDATE tree_events SET acked = 1"
    " WHERE recipient = ? AND born = ? AND id <= ? AND returned = 1 AND acked = 0"
)
MOVE = (
    "UPDATE tree_events SET recipient = ?, born = ? WHERE recipient = ? AND born = ?"
    " AND returned = 0 AND acked = 0 AND kind != 'message'"
)


END_TASK = (
    "UPDATE tree_events SET acked = 1"
    " WHERE recipient = ? AND (returned = 1 OR kind = 'task_finished') AND acked = 0"
)


@dataclass(frozen=True)
class Receiver:
    """Whose queue: a name, and when the agent that has it was first started."""

    name: str
    born: str = ""


OWNER = Receiver(ROOT)


@dataclass(frozen=True)
class NewEvent:
    """An event to be put. The same `key` puts it once. `is_late`: nobody waits for it any more."""

    to: Receiver
    kind: str
    sender: str
    data: Mapping[str, Any]
    key: str
    is_late: bool = False


class Queue:
    """All queues of one hub."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._waiting: Counter[str] = Counter()
        self._is_leaving = False

    # ── putting ──

    def write(self, transaction: Transaction, event: NewEvent) -> bool:
        """As a part of the caller's transaction; False: it was there. Call `wake` afterwards."""
        data = json.dumps(dict(event.data))
        row = (event.to.name, event.to.born, event.kind, event.sender, time.time(), data, event.key)
        if not transaction.connection.execute(INSERT, (*row, event.is_late)).rowcount:
            return False
        queue, sender = event.to.name, event.sender
        transaction.connection.execute(EXPIRE_SENDER, (queue, sender, queue, sender))
        transaction.connection.execute(EXPIRE, (queue, queue))
        return True

    def end_task(self, transaction: Transaction, name: str) -> None:
        """The task of that agent is over. All that was returned to it has arrived, and the ends of
        tasks that it gave concern no other task of it. As a part of the caller's transaction."""
        transaction.connection.execute(END_TASK, (name,))

    async def put(self, event: NewEvent) -> None:
        """On disk when this returns."""
        await self._store.write(lambda transaction: self.write(transaction, event))
        self.wake(event.to.name)

    async def move(self, ended: Receiver, heir: Receiver) -> None:
        """What waits for that agent, and was never shown to it, waits for another now."""
        row = (heir.name, heir.born, ended.name, ended.born)
        await self._store.write(lambda transaction: transaction.connection.execute(MOVE, row))
        self.wake(heir.name)

    async def receivers(self) -> set[str]:
        """The agents for whom something waits that was never shown to them."""
        select = (
            "SELECT DISTINCT recipient FROM tree_events WHERE returned = 0 AND acked = 0"
            " AND kind != 'message' AND recipient != ?"
        )
        rows = await self._store.read(lambda database: database.execute(select, (ROOT,)).fetchall())
        return {row[0] for row in rows}

    def wake(self, name: str) -> None:
        """Something is new in that queue. On the loop."""
        self._changed.pop(name, asyncio.Event()).set()

    # ── waiting ──

    def is_waiting(self, name: str) -> bool:
        """Whether that agent waits for an event in this moment."""
        return self._waiting[name] > 0

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Count the caller among those who wait."""
        self._waiting[name] += 1
        try:
            yield
        finally:
            self._waiting[name] -= 1

    async def acknowledge(self, to: Receiver, after: int) -> None:
        """That event has arrived, and all before it that were returned."""
        row = (to.name, to.born, after)
        await self._store.write(
            lambda transaction: transaction.connection.execute(ACKNOWLEDGE, row)
        )

    async def next_event(
        self, to: Receiver, kinds: Collection[str] = (), seconds: float = 0.0
    ) -> ChildEvent | None:
        """The oldest that is not acknowledged, of one of these kinds; None: none came in time."""
        deadline = time.monotonic() + seconds
        while True:
            changed = self._changed[to.name]  # before the look, so that nothing falls between
            event = await self._first(to, kinds)
            if event is not None or self._is_leaving:
                return event
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await changed.wait()
            except TimeoutError:
                return None

    async def _first(self, to: Receiver, kinds: Collection[str]) -> ChildEvent | None:
        only = f"AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
        select = (
            f"SELECT {COLUMNS} FROM tree_events WHERE recipient = ? AND born = ? AND acked = 0"
            f" {only} ORDER BY id LIMIT 1"
        )
        values = (to.name, to.born, *kinds)
        row = await self._store.read(lambda database: database.execute(select, values).fetchone())
        if row is None:
            return None
        await self._store.write(lambda transaction: _mark_returned(transaction, row[0]))
        return _event(row)

    async def list_events(
        self, to: Receiver, after: int, limit: int, seconds: float = 0.0
    ) -> list[ChildEvent]:
        """For the owner: acknowledges nothing. Waits so long for the first. Nothing of another
        agent that had the name before."""
        select = (
            f"SELECT {COLUMNS} FROM tree_events WHERE recipient = ? AND born = ? AND id > ?"
            " ORDER BY id LIMIT ?"
        )
        values = (to.name, to.born, after, limit)
        deadline = time.monotonic() + seconds
        while True:
            changed = self._changed[to.name]
            rows = await self._store.read(
                lambda database: database.execute(select, values).fetchall()
            )
            left = deadline - time.monotonic()
            if rows or left <= 0 or self._is_leaving:
                return [_event(row) for row in rows]
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                return []

    def leave(self) -> None:
        """The hub stops: who waits looks once more, and is let go."""
        self._is_leaving = True
        for changed in list(self._changed.values()):
            changed.set()


def _mark_returned(transaction: Transaction, number: int) -> None:
    transaction.connection.execute("UPDATE tree_events SET returned = 1 WHERE id = ?", (number,))


def _event(row: Any) -> ChildEvent:
    number, kind, sender, at, data = row
    fields = {"id": number, "kind": kind, "sender": sender, "at": at, "data": json.loads(data)}
    return ChildEvent.model_validate(fields)

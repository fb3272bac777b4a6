"""Children across machines, in the database and in memory: those that agents of this machine have
started elsewhere, those that others have started here, and what is still to be told of the latter.

Used by the rest of this room, and by parts that only look. A machine that is in no fleet has no
row.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tree.queue import NewEvent
from bullpen.model.agent import Agent
from bullpen.model.fleet_child import GuestChild, RemoteChild

Key = tuple[str, str]  # the parent's host, and the child's id
T = TypeVar("T")


@dataclass(frozen=True)
class ChildUpdateRow:
    """Something that is to be told. Without an `event`: that it is over."""

    number: int
    agent: str
    event: str
    data: dict[str, Any]
    key: str
    is_over: bool


class ChildRows:
    """Of one hub. What is in memory is what was committed last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.remote: dict[str, RemoteChild] = {}
        self.taken: dict[Key, GuestChild] = {}
        self._remote_changed = asyncio.Event()  # replaced at every change
        self.taken_changed = asyncio.Event()  # something may be to do for one, or to tell

    async def load(self) -> list[RemoteChild]:
        """What earlier hubs knew. Those that one had not sent yet, which were never asked of
        anybody: they are none."""
        rows = await self._read("SELECT data FROM fleet_asked")
        children = [RemoteChild.model_validate_json(data) for (data,) in rows]
        dropped = [child for child in children if child.state == "asked"]
        await self._store.write(lambda transaction: _drop_asked(transaction, dropped))
        self.remote = {child.id: child for child in children if child.state != "asked"}
        taken = await self._read("SELECT data FROM fleet_children")
        for (data,) in taken:
            child = GuestChild.model_validate_json(data)
            self.taken[child.host, child.id] = child
        return dropped

    # ── those of agents of this machine ──

    def find_named(self, name: str) -> RemoteChild | None:
        """The one that is called so (`HOST/NAME`), of several the last. One that was started before
        one that nobody has answered for: anybody may ask for a name that is taken."""
        children = [
            each
            for each in self.remote.values()
            if each.full_name == name and each.state != "refused"
        ]
        return max(children, key=lambda child: (child.state == "started", child.at), default=None)

    def list_of(self, parent: str) -> list[RemoteChild]:
        """In the order of names, without what was refused."""
        children = [
            child
            for child in self.remote.values()
            if child.parent == parent and child.state != "refused"
        ]
        return sorted(children, key=lambda child: (child.full_name, child.at))

    def count_living(self, parent: str) -> int:
        """For limits."""
        return sum(child.is_living for child in self.list_of(parent))

    def remote_changed(self) -> asyncio.Event:
        """Set at the next change. Take it before you look."""
        return self._remote_changed

    async def put_remote(self, child: RemoteChild) -> None:
        """A new one."""
        await self._store.write(lambda transaction: _write_asked(transaction, child))
        self._note_asked(child.id, child)

    async def change_asked(
        self,
        id: str,
        change: Callable[[RemoteChild], RemoteChild],
        also: Callable[[Transaction, RemoteChild], None] | None = None,
    ) -> RemoteChild:
        """As it is now, changed; `also` is done in the same transaction."""

        def write(transaction: Transaction) -> RemoteChild:
            child = change(_find_asked(transaction, id))
            _write_asked(transaction, child)
            if also is not None:
                also(transaction, child)
            return child

        child = await self._store.write(write)
        self._note_asked(id, child)
        return child

    async def drop_asked(
        self, child: RemoteChild, also: Callable[[Transaction], None] | None = None
    ) -> None:
        """It is nobody's any more. `also` is done in the same transaction."""

        def write(transaction: Transaction) -> None:
            _drop_asked(transaction, [child])
            if also is not None:
                also(transaction)

        await self._store.write(write)
        self._note_asked(child.id, None)

    def _note_asked(self, id: str, child: RemoteChild | None) -> None:
        if child is None:
            self.remote.pop(id, None)
        else:
            self.remote[id] = child
        changed, self._remote_changed = self._remote_changed, asyncio.Event()
        changed.set()

    # ── those that others have started here ──

    def note_taken(self, child: GuestChild) -> None:
        """What was committed. On the loop."""
        self.taken[child.host, child.id] = child
        self.taken_changed.set()

    @staticmethod
    def write_taken(transaction: Transaction, child: GuestChild) -> None:
        """As a part of the caller's transaction. Call `note_taken` afterwards."""
        transaction.connection.execute(
            "INSERT OR REPLACE INTO fleet_children (host, id, data) VALUES (?, ?, ?)",
            (child.host, child.id, child.model_dump_json()),
        )

    @staticmethod
    def find_taken(transaction: Transaction, host: str, id: str) -> GuestChild | None:
        """As a part of the caller's transaction."""
        row = transaction.connection.execute(
            "SELECT data FROM fleet_children WHERE host = ? AND id = ?", (host, id)
        ).fetchone()
        return GuestChild.model_validate_json(row[0]) if row else None

    async def drop_taken(self, child: GuestChild) -> None:
        """Nothing is left of it here, and nothing is to be told."""

        def write(transaction: Transaction) -> None:
            transaction.connection.execute(
                "DELETE FROM fleet_children WHERE host = ? AND id = ?", (child.host, child.id)
            )

        await self._store.write(write)
        self.taken.pop((child.host, child.id), None)

    # ── what is to be told of them ──

    def tell(self, transaction: Transaction, agent: Agent, event: NewEvent | None) -> None:
        """Have that agent's parent told, in the order in which this is called. As a part of the
        caller's transaction. Call `wake` afterwards."""
        report = {
            "event": event.kind if event else "",
            "data": dict(event.data) if event else {},
            "key": event.key if event else f"over:{agent.run}",
            "is_over": event is None or event.kind == "child_exited",
        }
        transaction.connection.execute(
            "INSERT INTO fleet_told (host, id, agent, data) VALUES (?, ?, ?, ?)",
            (agent.parent.partition("/")[0], agent.order, agent.name, json.dumps(report)),
        )

    def wake(self) -> None:
        """What was to be told is committed. On the loop."""
        self.taken_changed.set()

    async def list_told(self) -> dict[Key, ChildUpdateRow]:
        """The first of each child."""
        rows = await self._read(
            "SELECT MIN(number), host, id, agent, data FROM fleet_told GROUP BY host, id"
        )
        return {
            (host, id): ChildUpdateRow(number=number, agent=agent, **json.loads(data))
            for number, host, id, agent, data in rows
        }

    @staticmethod
    def drop_told(transaction: Transaction, row: ChildUpdateRow) -> bool:
        """It is in a letter; whether it was not before. As a part of the caller's transaction."""
        delete = "DELETE FROM fleet_told WHERE number = ?"
        return bool(transaction.connection.execute(delete, (row.number,)).rowcount)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """In a transaction of its own."""
        return await self._store.write(work)

    async def _read(self, select: str) -> list[Any]:
        return await self._store.read(lambda database: database.execute(select).fetchall())


def _find_asked(transaction: Transaction, id: str) -> RemoteChild:
    row = transaction.connection.execute(
        "SELECT data FROM fleet_asked WHERE id = ?", (id,)
    ).fetchone()
    return RemoteChild.model_validate_json(row[0])


def _write_asked(transaction: Transaction, child: RemoteChild) -> None:
    transaction.connection.execute(
        "INSERT OR REPLACE INTO fleet_asked (id, data) VALUES (?, ?)",
        (child.id, child.model_dump_json()),
    )


def _drop_asked(transaction: Transaction, children: list[RemoteChild]) -> None:
    ids = [(child.id,) for child in children]
    transaction.connection.executemany("DELETE FROM fleet_asked WHERE id = ?", ids)

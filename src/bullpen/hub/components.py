"""The components that told the hub where they are: in memory, and in the database for the next hub.

A component is its process: one whose process is gone is dropped as soon as somebody looks. The
hub's own journal is here, too: who came and who left is most of what happens to a hub.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from bullpen import proc
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.hub.store import Store
from bullpen.model.component import Component, Registration

T = TypeVar("T")

COLUMNS = tuple(Component.model_fields)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM components"
REPLACE = (
    f"INSERT OR REPLACE INTO components ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
)
DELETE = "DELETE FROM components WHERE name = ?"


class Components:
    """By name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Component] = {}
        self._changing = asyncio.Lock()
        self.journal = Journal(logging.getLogger("bullpen.hub"))

    async def load(self) -> None:
        """Those that an earlier hub was told of."""
        rows = await self._write(lambda database: database.execute(SELECT).fetchall())
        for row in rows:
            component = Component(**dict(zip(COLUMNS, row, strict=True)))
            self._known[component.name] = component
        self.journal.note("info", "started", components=len(self._known))

    async def register(self, asked: Registration) -> Component:
        """Keep it; told again by the same process it is the newer word that counts."""
        began = proc.start_time(asked.pid)
        if began is None:
            raise BullpenError(f"there is no process {asked.pid}", hint="register while it runs")
        component = Component(**dict(asked), start_time=began, registered=time.time())
        async with self._changing:
            found = self._known.get(asked.name)
            if found is not None and _is_alive(found) and found.pid != asked.pid:
                raise BullpenError(
                    f"{asked.name} is registered already, by pid {found.pid}",
                    hint="register under another name, or end that process",
                    kind=Kind.CONFLICT,
                )
            await self._write(lambda database: database.execute(REPLACE, dict(component)))
            self._known[component.name] = component
        if found is None or found.pid != component.pid:
            self.journal.note("info", "a component came", **_named(component))
        return component

    async def living(self) -> list[Component]:
        """Those whose process lives; the others are forgotten."""
        for component in list(self._known.values()):
            if not _is_alive(component) and await self._forget(component):
                self.journal.note("warn", "a component is gone", **_named(component))
        return sorted(self._known.values(), key=lambda component: component.name)

    async def remove(self, name: str) -> Component:
        """Forget it; its process is none of our business."""
        found = self._known.get(name)
        if found is None:
            raise BullpenError(f"no component called {name}", kind=Kind.NOT_FOUND)
        if await self._forget(found):
            self.journal.note("info", "a component left", **_named(found))
        return found

    async def _forget(self, component: Component) -> bool:
        async with self._changing:
            if self._known.get(component.name) is not component:
                return False  # one that came meanwhile
            await self._write(lambda database: database.execute(DELETE, (component.name,)))
            del self._known[component.name]
            return True

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(function))


def _is_alive(component: Component) -> bool:
    return proc.start_time(component.pid) == component.start_time


def _named(component: Component) -> dict[str, object]:
    return {"component": component.name, "kind": component.kind, "url": component.url}

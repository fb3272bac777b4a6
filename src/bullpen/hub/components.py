"""The register of components: directors, views and bridges that told the hub where they are.

Called by `hub/http/components` and `hub/http/status`. Writes the table `components`, for the next
hub, and notes in the hub's journal who came and who left. A component is its process: one whose
process is gone is dropped as soon as somebody looks, and remembered for a day. Never asks or
signals that process.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from bullpen import proc
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.component import GONE_SECONDS, Component, Registration

COLUMNS = tuple(Component.model_fields)
# How it is now is not stored of one that lives: it tells the next hub.
NOT_SAID = {"state": None, "problem": ""}
MOST_GONE = 100
SELECT = f"SELECT {', '.join(COLUMNS)} FROM components"
REPLACE = (
    f"INSERT OR REPLACE INTO components ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
)
DELETE = "DELETE FROM components WHERE name = :name"


class Components:
    """All registered components, by name. `journal` is the hub's."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._known: dict[str, Component] = {}
        self._gone: dict[str, Component] = {}
        self._changing = asyncio.Lock()
        self._journal = journal

    async def load(self) -> None:
        """Read what earlier hubs registered."""
        rows = await self._store.read(lambda database: database.execute(SELECT).fetchall())
        for row in rows:
            component = Component(**dict(zip(COLUMNS, row, strict=True)))
            (self._known if component.gone_at is None else self._gone)[component.name] = component
        self._journal.note("info", "started", components=len(self._known))

    async def register(self, registration: Registration) -> Component:
        """Add a component. The same process may register again, and then replaces its entry."""
        began = proc.start_time(registration.pid)
        if began is None:
            raise BullpenError(
                f"there is no process {registration.pid}", hint="register while it runs"
            )
        async with self._changing:
            last = self._known.get(registration.name)
            if last is not None and _is_alive(last) and last.pid != registration.pid:
                raise BullpenError(
                    f"{registration.name} is registered already, by pid {last.pid}",
                    hint="register under another name, or end that process",
                    kind=Kind.CONFLICT,
                )
            is_same = last is not None and (last.pid, last.start_time) == (registration.pid, began)
            registered = last.registered if last is not None and is_same else time.time()
            component = Component(**dict(registration), start_time=began, registered=registered)
            if last is None or _stored(component) != _stored(last):
                await self._execute((REPLACE, _stored(component)))
            self._known[component.name] = component
            self._gone.pop(component.name, None)
        if not is_same:
            self._journal.note("info", "a component came", **_named(component))
        return component

    async def living(self) -> list[Component]:
        """The components whose process lives; the others are gone."""
        for component in list(self._known.values()):
            if not _is_alive(component) and await self._note_gone(component):
                self._journal.note("warn", "a component is gone", **_named(component))
        return sorted(self._known.values(), key=lambda component: component.name)

    async def gone(self) -> list[Component]:
        """Those that died without leaving, of the last day, as they last said they were."""
        await self.living()
        return sorted(_recent(self._gone.values()), key=lambda component: component.name)

    async def remove(self, name: str) -> Component:
        """Forget it; its process is none of our business."""
        component = self._known.get(name)
        if component is None:
            raise BullpenError(f"no component called {name}", kind=Kind.NOT_FOUND)
        if await self._forget(component):
            self._journal.note("info", "a component left", **_named(component))
        return component

    async def _forget(self, component: Component) -> bool:
        async with self._changing:
            if self._known.get(component.name) is not component:
                return False  # one that came meanwhile
            await self._execute((DELETE, {"name": component.name}))
            del self._known[component.name]
            return True

    async def _note_gone(self, component: Component) -> bool:
        async with self._changing:
            if self._known.get(component.name) is not component:
                return False  # one that came meanwhile
            gone = component.model_copy(update={"gone_at": time.time()})
            kept = {one.name: one for one in _recent([*self._gone.values(), gone])}
            dropped = [(DELETE, {"name": name}) for name in self._gone.keys() - kept.keys()]
            await self._execute((REPLACE, _stored(gone)), *dropped)
            del self._known[component.name]
            self._gone = kept
            return True

    async def _execute(self, *statements: tuple[str, dict[str, Any]]) -> None:
        def write(transaction: Transaction) -> None:
            for statement, values in statements:
                transaction.connection.execute(statement, values)

        await self._store.write(write)


def _stored(component: Component) -> dict[str, Any]:
    return {**dict(component), **(NOT_SAID if component.gone_at is None else {})}


def _recent(gone: Iterable[Component]) -> list[Component]:
    """Those of the last day, as many as are kept; the latest last."""
    began = time.time() - GONE_SECONDS
    in_order = sorted(gone, key=lambda component: component.gone_at or 0.0)
    return [one for one in in_order if (one.gone_at or 0.0) > began][-MOST_GONE:]


def _is_alive(component: Component) -> bool:
    return proc.start_time(component.pid) == component.start_time


def _named(component: Component) -> dict[str, object]:
    return {"component": component.name, "kind": component.kind, "url": component.url}

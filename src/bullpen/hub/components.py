"""The register of components: directors, views and bridges that told the hub where they are.

Called by `hub/http/components` and `hub/http/status`. Writes the table `components`, for the next
hub, and notes in the hub's journal who came and who left. A component is its process: one whose
process is gone is dropped as soon as somebody looks, and remembered by this hub for a day. Never
asks or signals that process.
"""

import asyncio
import time

from bullpen import proc
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.hub.store.store import Store
from bullpen.model.component import Component, Registration

# How it is now is not stored: whoever lives tells the next hub.
NOT_STORED = ("state", "problem", "gone_at")
COLUMNS = tuple(name for name in Component.model_fields if name not in NOT_STORED)
GONE_SECONDS = 24 * 3600.0
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
            self._known[component.name] = component
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
                await self._execute(REPLACE, _stored(component))
            self._known[component.name] = component
            self._gone.pop(component.name, None)
        if not is_same:
            self._journal.note("info", "a component came", **_named(component))
        return component

    async def living(self) -> list[Component]:
        """The components whose process lives; the others are forgotten."""
        for component in list(self._known.values()):
            if not _is_alive(component) and await self._forget(component):
                self._gone[component.name] = component.model_copy(update={"gone_at": time.time()})
                self._journal.note("warn", "a component is gone", **_named(component))
        return sorted(self._known.values(), key=lambda component: component.name)

    async def gone(self) -> list[Component]:
        """Those that died without leaving, of the last day, as they last said they were."""
        await self.living()
        began = time.time() - GONE_SECONDS
        recent = [one for one in self._gone.values() if (one.gone_at or 0.0) > began]
        self._gone = {one.name: one for one in recent[-MOST_GONE:]}
        return sorted(self._gone.values(), key=lambda component: component.name)

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
            await self._execute(DELETE, {"name": component.name})
            del self._known[component.name]
            return True

    async def _execute(self, statement: str, values: dict[str, object]) -> None:
        await self._store.write(
            lambda transaction: transaction.connection.execute(statement, values)
        )


def _stored(component: Component) -> dict[str, object]:
    return {name: getattr(component, name) for name in COLUMNS}


def _is_alive(component: Component) -> bool:
    return proc.start_time(component.pid) == component.start_time


def _named(component: Component) -> dict[str, object]:
    return {"component": component.name, "kind": component.kind, "url": component.url}

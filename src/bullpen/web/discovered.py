"""Other components as the page shows them: those that the hub has registered, and those that a
look at this machine's ports has found.

What only a look found may say of itself what it likes: it is shown, and has no buttons. Looks when
somebody asks, as often as `component/watcher` says; an open page asks every few seconds.
"""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from bullpen.client import AsyncHub
from bullpen.client.components import list_components
from bullpen.component import mdns
from bullpen.component.discovery import DiscoveredComponent
from bullpen.component.ports import LOOPBACK
from bullpen.component.watcher import ComponentWatcher
from bullpen.errors import BullpenError
from bullpen.model.component import Component
from bullpen.web.config import WebDiscovery


class Discovered:
    """What is known of them. `hub` must not start one."""

    def __init__(self, hub: AsyncHub, settings: WebDiscovery, home_id: str) -> None:
        self._hub = hub
        self._home_id = home_id
        self._is_announced = settings.method == "mdns"
        self._watcher = ComponentWatcher(
            settings.ports, look_seconds=settings.refresh_interval.total_seconds()
        )
        self._looking = asyncio.Lock()

    async def look(self) -> list[dict[str, Any]]:
        """All of them, this home's first."""
        async with self._looking:
            await self._watcher.step()
        watched = list(self._watcher.picture.values())
        shown = [self._shown(one.last, one.health) for one in watched]
        if self._is_announced:
            heard = await asyncio.to_thread(mdns.find)
            known = {one.last.key for one in watched}
            shown += [self._shown(one, "healthy") for one in heard if one.key not in known]
        try:
            registered = await self._hub.do(list_components())
        except BullpenError:  # the hub is away: then nothing has buttons
            registered = []
        return sorted(
            _marked(shown, registered), key=lambda one: (not one["own"], one["kind"], one["name"])
        )

    def _shown(self, one: DiscoveredComponent, health: str) -> dict[str, Any]:
        return {
            "name": one.name,
            "kind": one.type,
            "url": f"http://{one.address}:{one.port}",
            "version": one.version,
            "state": one.state,
            "health": health,
            "own": one.is_own(self._home_id),
            "registered": False,
        }


def _marked(shown: list[dict[str, Any]], registered: list[Component]) -> list[dict[str, Any]]:
    """Those that the hub knows, by name and port, are marked; silent ones are added. Pure."""
    by_place = {(one.name, urlsplit(one.url).port): one for one in registered}
    marked = []
    for one in shown:
        port = urlsplit(one["url"]).port
        is_here = one["url"] == f"http://{LOOPBACK}:{port}"
        known = by_place.pop((one["name"], port), None) if is_here else None
        marked.append({**one, "registered": known is not None and known.kind == one["kind"]})
    for silent in by_place.values():
        marked.append(
            {
                **{key: getattr(silent, key) for key in ("name", "kind", "url", "version")},
                "state": None,
                "health": "unreachable",
                "own": True,
                "registered": True,
            }
        )
    return marked

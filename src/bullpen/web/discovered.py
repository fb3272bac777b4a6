"""Other components as the page shows them: those that the hub has registered, and those that a
look at this machine's ports has found.

The registered are asked at their own ports, and nobody else is believed to be one of them. What
only a look found may say of itself what else it likes: it is shown, and has no buttons. Looks when
somebody asks, as often as `component/watcher` says; an open page asks every few seconds.
"""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

from bullpen.client import AsyncHub
from bullpen.client.components import list_components
from bullpen.component import mdns
from bullpen.component.discovery import DiscoveredComponent, scan
from bullpen.component.watcher import ComponentWatcher, Picture, believed, due, expected, polled
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
        self._registered: Picture = {}
        self._looking = asyncio.Lock()

    async def look(self) -> list[dict[str, Any]]:
        """All of them, this home's first."""
        async with self._looking:
            is_told = await self._look_at_registered()
            await self._watcher.step()
        own = self._registered
        shown = [self._shown(one.last, one.health, is_told) for one in own.values()]
        others = [one for key, one in self._watcher.picture.items() if key not in own]
        shown += [self._shown(one.last, one.health) for one in others]
        if self._is_announced:
            known = {*own, *(one.last.key for one in others)}
            heard = await asyncio.to_thread(mdns.find)
            shown += [self._shown(one, "healthy") for one in heard if one.key not in known]
        return sorted(shown, key=lambda one: (not one["own"], one["kind"], one["name"]))

    async def _look_at_registered(self) -> bool:
        """Ask those that are due. Whether the hub said who they are; while it is away they are
        those that it named last, and have no buttons."""
        known, is_told = [one.last for one in self._registered.values()], True
        try:
            known = [self._named(one) for one in await self._hub.do(list_components())]
        except BullpenError:
            is_told = False
        now = time.monotonic()
        picture = expected(self._registered, known, now)
        keys = due(picture, now)
        addresses = {(key, picture[key].last.port) for key in keys}
        answers = await asyncio.to_thread(scan, [port for _, port in addresses])
        answered = believed(answers, addresses)
        self._registered = polled(picture, keys, answered, time.monotonic())
        return is_told

    def _named(self, one: Component) -> DiscoveredComponent:
        port = urlsplit(one.url).port or 0
        return DiscoveredComponent(
            port, one.kind, one.name, one.version, one.state, (), self._home_id
        )

    def _shown(
        self, one: DiscoveredComponent, health: str, is_registered: bool = False
    ) -> dict[str, Any]:
        return {
            "name": one.name,
            "kind": one.type,
            "url": f"http://{one.address}:{one.port}",
            "version": one.version,
            "state": one.state,
            "health": health,
            "own": one.is_own(self._home_id),
            "registered": is_registered,
        }

"""How everything is that serves in this home: for `bullpen components`.

Known are the hub by its file, directors, views and bridges by the register, agents' ports by the
home's files; `component/watcher` asks them. The register knows whose process has died: what answers
at the port of a dead one is somebody else. Commands nobody.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from bullpen.cli.components import HUB_SECONDS
from bullpen.client import processes
from bullpen.client.components import list_components
from bullpen.client.hub import Hub
from bullpen.component.discovery import DiscoveredComponent
from bullpen.component.watcher import ComponentWatcher, Key, WatchedComponent
from bullpen.errors import BullpenError
from bullpen.home.agent_files import claimed_ports
from bullpen.home.hub_file import read_hub_file
from bullpen.home.paths import HUB, Home
from bullpen.home.supervised import find_above
from bullpen.model.component import Component

Health = Literal["healthy", "late", "unreachable"]


@dataclass(frozen=True)
class ComponentHealth:
    """One of them. `state` is the last that is known, None if nothing is; `problem` is what it last
    said of itself, or what its supervisor says of its end."""

    type: str
    name: str
    state: str | None
    health: Health
    port: int
    version: str
    problem: str


class HomeComponents:
    """All of one home, looked at again and again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._id = home.id
        self._watcher = ComponentWatcher(())
        self._problems: dict[Key, str] = {}
        self._dead: dict[Key, DiscoveredComponent] = {}

    def look(self) -> list[ComponentHealth]:
        """Ask those that are due, and say how all of them are, by type and name."""
        own_ports = {port for _, port in claimed_ports(self._home) if 0 < port < 1 << 16}
        self._watcher.know(self._read_known(), own_ports)
        asyncio.run(self._watcher.step())
        shown = [
            self._shown(key, one)
            for key, one in self._watcher.picture.items()
            if one.last.is_own(self._id)
        ]
        return sorted(shown, key=lambda one: (one.type, one.name))

    def _read_known(self) -> list[DiscoveredComponent]:
        """The hub, and what is registered; notes who of them is dead."""
        known = self._read_register()
        file = read_hub_file(self._home)
        if file.port:
            hub = DiscoveredComponent(file.port, "hub", HUB, file.version, None, (), self._id)
            known.append(hub)
            if processes.find_hub(self._home) is None:
                self._dead[hub.key] = hub
            else:
                self._dead.pop(hub.key, None)
        return known

    def _read_register(self) -> list[DiscoveredComponent]:
        """What the hub says; while it is away or silent, what it has written down."""
        try:
            hub = Hub(self._home, start=False, seconds=HUB_SECONDS)
            registered = hub.do(list_components(gone=True))
        except (BullpenError, OSError):
            written = processes.registered(self._home)
            return [self._named(one, None) for one in written]
        known = []
        for one in registered:
            component = self._named(one, one.state)
            known.append(component)
            self._problems[component.key] = one.problem
            if one.gone_at is None:
                self._dead.pop(component.key, None)
            else:
                self._dead[component.key] = component
        return known

    def _named(
        self, one: Component | processes.RegisteredComponent, state: str | None
    ) -> DiscoveredComponent:
        port = urlsplit(one.url).port or 0
        return DiscoveredComponent(port, one.kind, one.name, one.version, state, (), self._id)

    def _shown(self, key: Key, one: WatchedComponent) -> ComponentHealth:
        last, health = self._dead.get(key, one.last), one.health
        is_dead = key in self._dead
        return ComponentHealth(
            type=last.type,
            name=last.name,
            state=last.state,
            health="unreachable" if is_dead else "late" if health == "warning" else health,
            port=last.port,
            version=last.version,
            problem=(is_dead and self._ending(last)) or self._problems.get(key, ""),
        )

    def _ending(self, dead: DiscoveredComponent) -> str:
        """Of one that is started again."""
        home = self._home
        directory = home.directors / dead.name if dead.type == "director" else home.root / "web"
        above = find_above(directory) if dead.type in ("director", "view") else None
        return above.text(time.time()) if above is not None else ""

"""How everything is that serves in this home: for `bullpen components`.

Known are the hub by its file, directors, views and bridges by the register, agents' ports by what
the hub says; while it is away or silent, by the home's files. Each is asked at its own port, and
nobody else is believed there: any program can say that it is of this home. What the answers mean,
`component/watcher` decides. Commands nobody.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from bullpen.cli.components import HUB_SECONDS
from bullpen.client import last_known, processes
from bullpen.client.agents import list_agents
from bullpen.client.components import list_components
from bullpen.client.hub import Hub
from bullpen.component.discovery import DiscoveredComponent, scan
from bullpen.component.watcher import Picture, WatchedComponent, believed, due, expected, polled
from bullpen.errors import BullpenError
from bullpen.home.hub_file import HubFile, read_hub_file
from bullpen.home.paths import HUB, Home
from bullpen.home.supervised import find_above
from bullpen.model.agent_shown import AgentWithUsage
from bullpen.model.component import Component
from bullpen.model.state import Errored, State

Health = Literal["healthy", "late", "unreachable"]
# `silent`: the hub, which serves its port, does not answer. `dead`: nobody serves it.
Standing = Literal["served", "silent", "dead"]


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


@dataclass(frozen=True)
class KnownComponent:
    """One that this home has, as it is known without asking itself."""

    last: DiscoveredComponent
    problem: str
    standing: Standing


class HomeComponents:
    """All of one home, looked at again and again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._id = home.id
        self._picture: Picture = {}

    def look(self) -> list[ComponentHealth]:
        """Ask those that are due, and say how all of them are, by type and name."""
        known = {one.last.key: one for one in self._read_known()}
        now = time.monotonic()
        seen = expected(self._picture, (one.last for one in known.values()), now)
        # A dead one is due, so that it is asked as soon as it is back.
        dead = {key: replace(seen[key], due=now) for key in seen if known[key].standing == "dead"}
        picture = {**seen, **dead}
        keys = [key for key in due(picture, now) if known[key].standing != "dead"]
        served = {(key, one.last.port) for key, one in known.items() if one.standing == "served"}
        answers = scan(port for key, port in served if key in keys)
        self._picture = polled(picture, keys, believed(answers, served), time.monotonic())
        shown = [_shown(known[key], one) for key, one in self._picture.items() if key in known]
        return sorted(shown, key=lambda one: (one.type, one.name))

    def _read_known(self) -> list[KnownComponent]:
        """What the hub says; while it is away or silent, what it has written down."""
        file, has_hub = read_hub_file(self._home), True
        try:
            hub = Hub(self._home, start=False, seconds=HUB_SECONDS)
            components = hub.do(list_components(gone=True))
            agents = self._told_agents(file, hub.do(list_agents()).agents)
        except (BullpenError, OSError):
            has_hub = processes.find_hub(self._home) is not None
            components = last_known.list_components(self._home)
            agents = self._last_agents(file, "silent" if has_hub else "dead")
        known = [*map(self._registered, components), *agents]
        if file.port:
            last = self._named("hub", HUB, file.port, file.version, None)
            known.append(KnownComponent(last, "", "served" if has_hub else "dead"))
        return known

    def _registered(self, one: Component) -> KnownComponent:
        port = urlsplit(one.url).port or 0
        last = self._named(one.kind, one.name, port, one.version, one.state)
        if one.gone_at is None:
            return KnownComponent(last, one.problem, "served")
        return KnownComponent(last, self._find_ending(one) or one.problem, "dead")

    def _find_ending(self, dead: Component) -> str:
        """Of one that is started again."""
        home = self._home
        directory = home.directors / dead.name if dead.kind == "director" else home.root / "web"
        above = find_above(directory) if dead.kind in ("director", "view") else None
        return above.text(time.time()) if above is not None else ""

    def _told_agents(self, file: HubFile, agents: Iterable[AgentWithUsage]) -> list[KnownComponent]:
        """Those whose ports the hub serves, and those that it cannot serve."""
        wanted = last_known.agent_ports(self._home)
        known = []
        for one in agents:
            is_missing = one.takes_tasks and one.running and isinstance(one.state, Errored)
            port = one.port or (wanted.get(one.name) if is_missing else None)
            if port is not None:
                standing: Standing = "served" if one.port else "dead"
                known.append(self._agent(file, one.name, port, one.state, standing))
        return known

    def _last_agents(self, file: HubFile, standing: Standing) -> list[KnownComponent]:
        return [
            self._agent(file, one.name, one.port, one.state, standing)
            for one in last_known.list_task_agents(self._home)
        ]

    def _agent(
        self, file: HubFile, name: str, port: int, state: State, standing: Standing
    ) -> KnownComponent:
        """The hub serves its port, so its version is the hub's."""
        last = self._named("agent", name, port, file.version, state.state)
        problem = state.reason if isinstance(state, Errored) else ""
        return KnownComponent(last, problem, standing)

    def _named(
        self, kind: str, name: str, port: int, version: str, state: str | None
    ) -> DiscoveredComponent:
        return DiscoveredComponent(port, kind, name, version, state, (), self._id)


def _shown(known: KnownComponent, one: WatchedComponent) -> ComponentHealth:
    health: Health = "late" if one.health == "warning" else one.health
    return ComponentHealth(
        type=one.last.type,
        name=one.last.name,
        state=one.last.state,
        health="unreachable" if known.standing == "dead" else health,
        port=one.last.port,
        version=one.last.version,
        problem=known.problem,
    )

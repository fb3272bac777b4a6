"""Watches the components of this machine and the agents of a hub: healthy, warning, unreachable.

For views and directors. Pure functions over `WatchedComponent` decide what follows from a poll;
`ComponentWatcher` polls. One poll that fails proves nothing: the last known state stays, with a
warning. Only reads: commands nobody.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from bullpen.client import AsyncHub
from bullpen.client.agents import list_agents
from bullpen.client.events import RESET, stream_events
from bullpen.component.discovery import DiscoveredComponent, scan
from bullpen.component.ports import LOOPBACK
from bullpen.errors import BullpenError

if TYPE_CHECKING:  # for a view that follows no agents it would be 6 MB
    from bullpen.model.agent_shown import AgentWithUsage

log = logging.getLogger("bullpen.watcher")

IDLE_SECONDS = 5.0
WORKING_SECONDS = 1.0
LOOK_FOR_NEW_SECONDS = 30.0
UNREACHABLE_AFTER = 3  # polls that failed, one after the other
DROP_SECONDS = 24 * 3600.0
AGAIN_SECONDS = 1.0
BREATH_SECONDS = 0.05

Health = Literal["healthy", "warning", "unreachable"]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class WatchedComponent:
    """A component as it was last seen. Times are of one monotonic clock."""

    last: DiscoveredComponent
    seen: float
    due: float
    failures: int = 0

    @property
    def health(self) -> Health:
        if not self.failures:
            return "healthy"
        return "warning" if self.failures < UNREACHABLE_AFTER else "unreachable"


Picture = Mapping[Key, WatchedComponent]
Address = tuple[Key, int]


def expected(picture: Picture, known: Iterable[DiscoveredComponent], now: float) -> Picture:
    """The picture of those that are known from elsewhere, and of nobody else. One that is new in
    it, or serves at another port than before, is due."""
    watched = {}
    for one in known:
        before = picture.get(one.key)
        is_there = before is not None and before.last.port == one.port
        watched[one.key] = before if before and is_there else WatchedComponent(one, now, now)
    return watched


def believed(
    answers: Iterable[DiscoveredComponent], addresses: Collection[Address]
) -> list[DiscoveredComponent]:
    """The answers of components that are known, each at its own port: any program can say that it
    is one of them."""
    return [one for one in answers if (one.key, one.port) in addresses]


def answered(picture: Picture, components: Iterable[DiscoveredComponent], now: float) -> Picture:
    """The picture after these were seen: at a poll, or by looking for new ones."""
    return {
        **picture,
        **{one.key: WatchedComponent(one, now, now + _interval(one)) for one in components},
    }


def polled(
    picture: Picture, keys: Iterable[Key], components: Iterable[DiscoveredComponent], now: float
) -> Picture:
    """The picture after `keys` were asked and `components` answered. Who answers at the port of
    another component is not that component."""
    there = {one.key: one for one in components}
    missed = {
        key: replace(
            picture[key], failures=picture[key].failures + 1, due=now + _interval(picture[key].last)
        )
        for key in keys
        if key in picture and key not in there
    }
    return forgotten(answered({**picture, **missed}, there.values(), now), now)


def forgotten(picture: Picture, now: float) -> Picture:
    """The picture without components that were not seen for a day."""
    return {key: one for key, one in picture.items() if now - one.seen < DROP_SECONDS}


def due(picture: Picture, now: float) -> list[Key]:
    """The components to ask now."""
    return [key for key, one in picture.items() if one.due <= now]


def _interval(component: DiscoveredComponent) -> float:
    return WORKING_SECONDS if component.state == "working" else IDLE_SECONDS


class ComponentWatcher:
    """The loop. Replaces `picture` and `agents` as a whole, then calls `changed`. `listen` finds
    components at other ports, and may block: `mdns.find`, for example. `hub` must not start one."""

    def __init__(
        self,
        ports: Iterable[int],
        hub: AsyncHub | None = None,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_FOR_NEW_SECONDS,
        listen: Callable[[], Iterable[DiscoveredComponent]] | None = None,
    ) -> None:
        self.picture: Picture = {}
        self.agents: Mapping[str, AgentWithUsage] = {}
        self.hub_health: Health = "warning"  # nothing was heard of it yet
        self._ports = tuple(ports)
        self._hub = hub
        self._changed = changed
        self._clock = clock
        self._look_at = clock()
        self._look_seconds = look_seconds
        self._listen = listen
        self._is_stale = asyncio.Event()  # something happened to an agent

    async def run(self) -> None:
        """Watch until this is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll(), name="poll components")
            if self._listen is not None:
                tasks.create_task(self._hear(self._listen), name="listen for components")
            if self._hub is not None:
                tasks.create_task(self._follow(self._hub), name="follow the hub")
                tasks.create_task(self._refresh(self._hub), name="read agents")

    # ── components ──

    async def _poll(self) -> None:
        while True:
            await self.step()
            soonest = min([self._look_at, *(one.due for one in self.picture.values())])
            # A component that is announced meanwhile is asked after IDLE_SECONDS at the latest.
            await asyncio.sleep(min(max(0.01, soonest - self._clock()), IDLE_SECONDS))

    async def step(self) -> None:
        """Ask all components that are due; look for new ones if it is time."""
        now = self._clock()
        is_looking = now >= self._look_at
        keys = list(self.picture) if is_looking else due(self.picture, now)
        ports = {self.picture[key].last.port for key in keys}
        if is_looking:
            self._look_at = now + self._look_seconds
            ports |= set(self._ports)
        if not ports:
            return
        components = await asyncio.to_thread(scan, ports)
        self._show(polled(self.picture, keys, components, self._clock()))

    async def _hear(self, listen: Callable[[], Iterable[DiscoveredComponent]]) -> None:
        """Components of this machine are then asked: an announcement has no state."""
        while True:
            heard = await asyncio.to_thread(listen)
            ports = {one.port for one in heard if one.address == LOOPBACK}
            components = await asyncio.to_thread(scan, ports)
            self._show(answered(self.picture, components, self._clock()))
            await asyncio.sleep(self._look_seconds)

    def _show(self, picture: Picture) -> None:
        before = {key: (one.last, one.health) for key, one in self.picture.items()}
        self.picture = picture
        if before != {key: (one.last, one.health) for key, one in picture.items()}:
            self._changed()

    # ── agents ──

    async def _follow(self, hub: AsyncHub) -> None:
        failures = 0
        while True:
            reason = "it ended"
            try:
                async for event in hub.stream(stream_events(heartbeats=True)):
                    failures = 0
                    # One without a kind begins the stream, and comes when nothing happens for long.
                    if not event.kind or event.kind.startswith(("agent.", RESET)):
                        self._is_stale.set()
            except BullpenError as error:
                reason = error.message
            failures += 1
            log.debug("no stream of the hub", extra={"reason": reason})
            self._is_stale.clear()
            self.hub_health = "warning" if failures < UNREACHABLE_AFTER else "unreachable"
            self._changed()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _refresh(self, hub: AsyncHub) -> None:
        """Read the agents once for all events that came meanwhile."""
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            try:
                answer = await hub.do(list_agents())
            except BullpenError as error:
                # A hub that is away ends the stream, too, which begins again.
                log.debug("the agents cannot be read", extra={"reason": error.message})
                continue
            self.agents = {one.name: one for one in answer.agents}
            self.hub_health = "healthy"
            self._changed()
            await asyncio.sleep(BREATH_SECONDS)

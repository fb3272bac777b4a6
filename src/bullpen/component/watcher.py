"""Watches the components of this machine and the agents of a hub, for views and directors.

What follows from a poll is decided by pure functions over `Watched`; the loop that polls is
`Watcher`. One poll that fails proves nothing: what was last known stays, with a warning.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bullpen.component import ask
from bullpen.component.discovery import Found, scan
from bullpen.component.ports import LOOPBACK

log = logging.getLogger("bullpen.watcher")

IDLE_SECONDS = 5.0
WORKING_SECONDS = 1.0
LOOK_FOR_NEW_SECONDS = 30.0
UNREACHABLE_AFTER = 3  # polls that failed, one after the other
DROP_SECONDS = 24 * 3600.0
SILENCE_SECONDS = 40.0  # the hub's stream says something every 15
AGAIN_SECONDS = 1.0
BREATH_SECONDS = 0.05

Health = Literal["healthy", "warning", "unreachable"]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Watched:
    """A component as it was last seen. Times are of one monotonic clock."""

    last: Found
    seen: float
    due: float
    failures: int = 0

    @property
    def health(self) -> Health:
        if not self.failures:
            return "healthy"
        return "warning" if self.failures < UNREACHABLE_AFTER else "unreachable"


Picture = Mapping[Key, Watched]


def answered(picture: Picture, found: Iterable[Found], now: float) -> Picture:
    """These were seen: at a poll, or by looking for new ones."""
    return {**picture, **{one.key: Watched(one, now, now + _interval(one)) for one in found}}


def polled(picture: Picture, keys: Iterable[Key], found: Iterable[Found], now: float) -> Picture:
    """The components `keys` were asked, and this is who answered. Who answers at the port of
    another is not that other."""
    there = {one.key: one for one in found}
    missed = {
        key: replace(
            picture[key], failures=picture[key].failures + 1, due=now + _interval(picture[key].last)
        )
        for key in keys
        if key in picture and key not in there
    }
    return forgotten(answered({**picture, **missed}, there.values(), now), now)


def forgotten(picture: Picture, now: float) -> Picture:
    """Without those that were not seen for a day."""
    return {key: one for key, one in picture.items() if now - one.seen < DROP_SECONDS}


def due(picture: Picture, now: float) -> list[Key]:
    """Whom to ask now."""
    return [key for key, one in picture.items() if one.due <= now]


def _interval(found: Found) -> float:
    return WORKING_SECONDS if found.state == "working" else IDLE_SECONDS


class Watcher:
    """The loop. `picture` and `agents` are replaced as a whole; `changed` is called after it.
    `listen` finds those at other ports, and may take its time: `mdns.find`, say."""

    def __init__(
        self,
        ports: Iterable[int],
        hub_socket: Path | None = None,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_FOR_NEW_SECONDS,
        listen: Callable[[], Iterable[Found]] | None = None,
    ) -> None:
        self.picture: Picture = {}
        self.agents: Mapping[str, dict[str, Any]] = {}
        self.hub_health: Health = "warning"  # nothing was heard of it yet
        self._ports = tuple(ports)
        self._hub_socket = hub_socket
        self._changed = changed
        self._clock = clock
        self._look_at = clock()
        self._look_seconds = look_seconds
        self._listen = listen
        self._is_stale = asyncio.Event()  # something happened to an agent

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll(), name="poll components")
            if self._listen is not None:
                tasks.create_task(self._hear(self._listen), name="listen for components")
            if self._hub_socket is not None:
                tasks.create_task(self._follow(self._hub_socket), name="follow the hub")
                tasks.create_task(self._refresh(self._hub_socket), name="read agents")

    # ── components ──

    async def _poll(self) -> None:
        while True:
            await self.step()
            soonest = min([self._look_at, *(one.due for one in self.picture.values())])
            # No longer than one that is heard of meanwhile may wait.
            await asyncio.sleep(min(max(0.01, soonest - self._clock()), IDLE_SECONDS))

    async def step(self) -> None:
        """Ask all who are due; look for new ones if it is time."""
        now = self._clock()
        is_looking = now >= self._look_at
        keys = list(self.picture) if is_looking else due(self.picture, now)
        places = {self.picture[key].last.port for key in keys}
        if is_looking:
            self._look_at = now + self._look_seconds
            places |= set(self._ports)
        if not places:
            return
        found = await asyncio.to_thread(scan, places)
        self._show(polled(self.picture, keys, found, self._clock()))

    async def _hear(self, listen: Callable[[], Iterable[Found]]) -> None:
        """Those of this machine are asked themselves: an announcement says no state."""
        while True:
            heard = await asyncio.to_thread(listen)
            places = {one.port for one in heard if one.address == LOOPBACK}
            found = await asyncio.to_thread(scan, places)
            self._show(answered(self.picture, found, self._clock()))
            await asyncio.sleep(self._look_seconds)

    def _show(self, picture: Picture) -> None:
        before = {key: (one.last, one.health) for key, one in self.picture.items()}
        self.picture = picture
        if before != {key: (one.last, one.health) for key, one in picture.items()}:
            self._changed()

    # ── agents ──

    async def _follow(self, path: Path) -> None:
        failures = 0
        while True:
            try:
                async for event in ask.follow(path, "/events/stream", SILENCE_SECONDS):
                    failures = 0
                    if not event["kind"] or event["kind"].startswith(("agent.", "reset")):
                        self._is_stale.set()
            except ask.NoAnswerError as error:
                failures += 1
                log.debug("the hub's stream ended", extra={"reason": str(error)})
                self._is_stale.clear()
                self.hub_health = "warning" if failures < UNREACHABLE_AFTER else "unreachable"
                self._changed()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _refresh(self, path: Path) -> None:
        """Once for however many events came meanwhile."""
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            try:
                status, found = await asyncio.to_thread(ask.request, path, "GET", "/agents")
            except ask.NoAnswerError:
                continue  # the stream ends with it, and begins again
            if status == 200:
                self.agents = {one["name"]: one for one in found["agents"]}
                self.hub_health = "healthy"
                self._changed()
            await asyncio.sleep(BREATH_SECONDS)

"""The agents this hub knows, by name: identity, view, and the live handles beside them.

A plain table: no I/O, no decisions. `start` and `adopt` fill it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from bullpen.errors import BullpenError, Kind
from bullpen.hub.holders import Link
from bullpen.model.agent import Agent
from bullpen.model.state import View
from bullpen.suggest import did_you_mean


@dataclass
class Live:
    """One agent. `lock` is held while it is started."""

    agent: Agent
    view: View
    link: Link | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    settling: asyncio.Lock = field(default_factory=asyncio.Lock)  # one connection to a holder
    hooking: asyncio.Lock = field(default_factory=asyncio.Lock)  # hooks come one by one
    is_asked: bool = False  # again and again, because its holder did not answer
    over: asyncio.Event = field(default_factory=asyncio.Event)  # this run has ended

    @property
    def is_running(self) -> bool:
        return not self.view.is_over


class Registry:
    """All of them."""

    def __init__(self) -> None:
        self._agents: dict[str, Live] = {}
        # Session directories that cannot be read: shown, never dropped.
        self.broken: dict[str, str] = {}
        # Names that a pod is about to use, and the run that may.
        self.claimed: dict[str, str] = {}

    def __iter__(self) -> Iterator[Live]:
        return iter(sorted(self._agents.values(), key=lambda live: live.agent.name))

    def find(self, name: str) -> Live | None:
        return self._agents.get(name)

    def get(self, name: str) -> Live:
        if name in self._agents:
            return self._agents[name]
        if name in self.broken:
            raise BullpenError(self.broken[name], kind=Kind.CONFLICT)
        running = [live.agent.name for live in self if live.is_running]
        near = did_you_mean(name, self._agents)
        there = f" · running: {', '.join(running[:20])}" if running else " · none is running"
        raise BullpenError(
            f"no agent called {name}{near or there}", hint="bullpen list", kind=Kind.NOT_FOUND
        )

    def put(self, live: Live) -> None:
        self._agents[live.agent.name] = live

    def drop(self, name: str) -> None:
        self._agents.pop(name, None)

    def is_taken(self, name: str, run: str = "") -> bool:
        """Whether somebody runs under that name, is being started, or is about to be; `run` is
        the one that asks."""
        live = self._agents.get(name)
        return (
            name in self.broken
            or self.claimed.get(name, run) != run
            or (live is not None and (live.is_running or live.lock.locked()))
        )

    @contextlib.contextmanager
    def claim(self, name: str, run: str) -> Iterator[None]:
        """That run is about to use the name."""
        self.claimed[name] = run
        try:
            yield
        finally:
            self.claimed.pop(name, None)

    def free_name(self, wanted: str) -> str:
        """That name, or the next with a number, that nobody runs under."""
        name, number = wanted, 1
        while self.is_taken(name):
            number += 1
            name = f"{wanted}-{number}"
        return name

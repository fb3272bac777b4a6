"""The agents this hub knows, by name: identity, view, live handles; which names are claimed by a
start, and which sessions cannot be read.

A plain table: no I/O, no decisions. `start` and `adopt` fill it. Nobody changes it but by its
methods.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bullpen.errors import BullpenError, Kind
from bullpen.hub.holders.link import Link
from bullpen.model.agent import Agent
from bullpen.model.state import View
from bullpen.suggest import did_you_mean


@dataclass(frozen=True)
class PrivateGit:
    """What is known of an agent's own git: as `list` and `explain` say it."""

    where: str = ""  # it works, if not on its birth branch: `on feature/login`, `detached`
    diverged: bool = False
    refused: tuple[str, ...] = ()  # what did not come over, and why


@dataclass
class LiveAgent:
    """One agent and its handles. `lock` is held while it is started."""

    agent: Agent
    view: View
    link: Link | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reconciling: asyncio.Lock = field(default_factory=asyncio.Lock)  # one connection to a holder
    hooking: asyncio.Lock = field(default_factory=asyncio.Lock)  # hooks come one by one
    is_polling_holder: bool = False  # because it did not answer
    over: asyncio.Event = field(default_factory=asyncio.Event)  # this run has ended
    has_tools: asyncio.Event = field(default_factory=asyncio.Event)  # its program knows them
    is_stopping: bool = False  # somebody asked this hub to end it
    is_returning: bool = False  # it is being stopped to be started again
    prompt_typed_at: float = 0.0  # its first prompt had been typed for it by then
    left_conversation: str = ""  # of the last run, which this one does not go on with
    branch_was_there: bool = False  # when this hub started it: it goes on with what is on it
    private_git: PrivateGit | None = None  # None: it has none, or nobody has looked yet

    @property
    def is_running(self) -> bool:
        return not self.view.is_over


class Registry:
    """All agents that this hub knows."""

    def __init__(self) -> None:
        self._agents: dict[str, LiveAgent] = {}
        # Session directories that cannot be read: shown, never dropped.
        self._broken: dict[str, str] = {}
        # Names that a pod is about to use, and the run that may.
        self._claimed: dict[str, str] = {}

    def __iter__(self) -> Iterator[LiveAgent]:
        return iter(sorted(self._agents.values(), key=lambda live: live.agent.name))

    def find(self, name: str) -> LiveAgent | None:
        return self._agents.get(name)

    def get(self, name: str) -> LiveAgent:
        if name in self._agents:
            return self._agents[name]
        if name in self._broken:
            raise BullpenError(self._broken[name], kind=Kind.CONFLICT)
        running = [live.agent.name for live in self if live.is_running]
        near = did_you_mean(name, self._agents)
        there = f" · running: {', '.join(running[:20])}" if running else " · none is running"
        raise BullpenError(
            f"no agent called {name}{near or there}", hint="bullpen list", kind=Kind.NOT_FOUND
        )

    def put(self, live: LiveAgent) -> None:
        self._agents[live.agent.name] = live

    def drop(self, name: str) -> None:
        self._agents.pop(name, None)

    # ── sessions that cannot be read ──

    @property
    def broken(self) -> Mapping[str, str]:
        """Why each of them cannot be used, by name."""
        return MappingProxyType(self._broken)

    def mark_broken(self, name: str, why: str) -> None:
        self._broken[name] = why

    def forget_broken(self, name: str) -> None:
        self._broken.pop(name, None)

    # ── names ──

    def is_taken(self, name: str, run: str = "") -> bool:
        """Whether somebody runs under that name, is being started, or is about to be; `run` is
        the one that asks."""
        live = self._agents.get(name)
        return (
            name in self._broken
            or self._claimed.get(name, run) != run
            or (live is not None and (live.is_running or live.lock.locked()))
        )

    async def wait_cleared(self, name: str) -> None:
        """A clean-up may just be at what the last run of that name left: wait for its end."""
        while (live := self.find(name)) and not live.is_running and live.lock.locked():
            async with live.lock:
                pass

    def is_claimed(self, name: str) -> bool:
        """Whether a start is about to use the name."""
        return name in self._claimed

    def claim_all(self, runs: Mapping[str, str]) -> None:
        """From now on only these runs may use these names."""
        self._claimed.update(runs)

    def release(self, names: Iterable[str]) -> None:
        """Anybody may use these names."""
        for name in names:
            self._claimed.pop(name, None)

    @contextlib.contextmanager
    def claim(self, name: str, run: str) -> Iterator[None]:
        """Only that run may use the name, until the block ends."""
        self.claim_all({name: run})
        try:
            yield
        finally:
            self.release([name])

    def free_name(self, wanted: str) -> str:
        """That name, or the next with a number, that nobody runs under."""
        name, number = wanted, 1
        while self.is_taken(name):
            number += 1
            name = f"{wanted}-{number}"
        return name

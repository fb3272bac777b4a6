"""Starts agents again by themselves, as their role's `restart` says: after a reboot, and after an
end that nobody asked for.

A part of `parts`: it sees every `agent.stopped`, and looks once, when the hub serves, at what ended
before. `model/restarts` has the rules, `Launcher.resume` does it. What it gives up is told to the
person. Stops nobody.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable

from bullpen.errors import BullpenError
from bullpen.hub.agents.launch import Launcher
from bullpen.hub.agents.observe import draft
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.message import BULLPEN, ROOT, Message
from bullpen.model.restarts import MOST, WINDOW_SECONDS, add_restart, is_wanted
from bullpen.model.state import Interrupted, words

log = logging.getLogger("bullpen.hub")


class Reviver:
    """The restarts of one hub."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        launcher: Launcher,
        delivery: Delivery,
        background: Background,
    ) -> None:
        self._store = store
        self._registry = registry
        self._launcher = launcher
        self._delivery = delivery
        self._background = background
        self._ended: asyncio.Queue[tuple[str, str]] = asyncio.Queue()  # names and runs
        self._seen: dict[str, str] = {}  # the run of each name that was looked at last

    def notice(self, events: Iterable[Event]) -> None:
        """An end is looked at when the hub serves. Not one of a start that failed; and while the
        machine goes down, which tells holders to end, the next hub looks."""
        for event in events:
            is_end = event.kind == "agent.stopped" and "failed" not in event.data
            if is_end and event.data.get("ended") != "terminated":
                self._ended.put_nowait((event.agent, str(event.data.get("run", ""))))

    async def run(self) -> None:
        """Until it is cancelled."""
        for live in self._registry:
            if _is_left(live):
                self._ended.put_nowait((live.agent.name, live.agent.run))
        while True:
            name, run = await self._ended.get()
            if self._seen.get(name) != run:
                self._seen[name] = run
                self._background.begin(self._look(name, run), f"restart of {name}")

    async def _look(self, name: str, run: str) -> None:
        live = self._registry.find(name)
        if live is None or live.agent.run != run or live.is_running:
            return
        agent, end = live.agent, live.view.state
        if not is_wanted(agent.restart, end):
            return
        if await self._has(agent, "agent.stopping") or await self._has(agent, "agent.gave_up"):
            return
        last = await self._store.read(find_last(name, "agent.restarted"))
        times = add_restart(last.data.get("times", ()) if last else (), time.time())
        if times is None:
            often = f"{MOST} times in {WINDOW_SECONDS / 60:.0f} minutes"
            await self._give_up(agent, f"{name} was started again {often}, and ended: {words(end)}")
            return
        await self._store.append(draft("agent.restarted", agent, {"times": times}))
        try:
            await self._launcher.resume(name)
        except BullpenError as error:
            await self._give_up(agent, f"{name} cannot be started again: {error.message}")

    async def _has(self, agent: Agent, kind: str) -> bool:
        """Whether its run has such an event: somebody stopped it, or it was given up."""
        event = await self._store.read(find_last(agent.name, kind))
        return event is not None and event.data.get("run") == agent.run

    async def _give_up(self, agent: Agent, why: str) -> None:
        log.error("an agent is not started again", extra={"agent": agent.name, "why": why})
        number = hashlib.sha256(f"gave up:{agent.run}".encode()).hexdigest()[:12]
        text = f"{why}. It stays as it is: bullpen restart {agent.name}"
        await self._delivery.send(
            Message(id=f"m-{number}", sender=BULLPEN, to=ROOT, text=text, created=time.time())
        )
        # After the message, which has an id of its run: a hub that was killed between says it once.
        await self._store.append(draft("agent.gave_up", agent, {"why": why}))


def _is_left(live: LiveAgent) -> bool:
    """Whether an earlier hub may have come to its end, but not to its restart."""
    is_recent = time.time() - live.view.since < WINDOW_SECONDS
    return not live.is_running and (is_recent or isinstance(live.view.state, Interrupted))

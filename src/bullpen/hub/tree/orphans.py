"""What becomes of children whose parent ends before them: kept, stopped, or adopted.

A part of the hub: sees every `agent.stopped`, and looks once when the hub serves at what ended
before. `model/tree` has the rule. Every step may be repeated: a hub that is killed half-way leaves
the rest to the next. A parent that is being restarted, or comes back by itself, keeps its children.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.background import Background
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.hub.tree.children import Children
from bullpen.hub.tree.queue import Queue
from bullpen.model.event import Draft, Event
from bullpen.model.message import ROOT
from bullpen.model.restarts import is_wanted
from bullpen.model.role import OrphansRule
from bullpen.model.tree import AdoptChildren, Family, StopChildren, is_elsewhere, plan_orphans

log = logging.getLogger("bullpen.hub")

# Messages that wait for the first, of these senders, wait for the second from now on.
Redirect = Callable[[str, str, Sequence[str]], Awaitable[None]]


class Elsewhere(Protocol):
    """Children on other machines."""

    def list_parents(self) -> set[str]:
        """The agents of this one that have some."""
        ...

    async def orphan(self, parent: str, rule: OrphansRule, heir: str) -> None:
        """That parent has ended. May be asked again."""
        ...


class Orphans:
    """Of one hub."""

    def __init__(
        self,
        home: Home,
        store: Store,
        registry: Registry,
        stopper: Stopper,
        children: Children,
        queue: Queue,
        background: Background,
        redirect: Redirect,
        elsewhere: Elsewhere,
    ) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._stopper = stopper
        self._children = children
        self._queue = queue
        self._background = background
        self._redirect = redirect
        self._elsewhere = elsewhere
        self._adopting = asyncio.Lock()

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            is_end = event.kind == "agent.stopped" and "failed" not in event.data
            if is_end or event.kind == "agent.gave_up":
                self._background.begin(self.look(event.agent), f"orphans of {event.agent}")

    async def run(self) -> None:
        """What earlier hubs did not come to."""
        named = {live.agent.parent for live in self._registry if live.agent.parent}
        named |= self._elsewhere.list_parents()
        for name in sorted(named | await self._queue.receivers()):
            await self.look(name)

    async def look(self, name: str) -> None:
        """Do what is due for the children of that agent, if it has ended. Of one on another machine
        its own hub knows."""
        if is_elsewhere(name):
            return
        async with self._adopting:
            live = self._registry.find(name)
            if live is not None and (live.is_running or await self._returns(live)):
                return
            family = self._family_with(name, live)
            running = [each.agent.name for each in self._registry if each.is_running]
            rule = live.agent.orphans if live is not None else "adopt"
            match plan_orphans(family, running, name, rule):
                case StopChildren(names=names):
                    await self._stop(names)
                case AdoptChildren(names=names, to=heir):
                    await self._adopt(name, names, heir)
            heir = next((each for each in family.line(name) if each in running), ROOT)
            await self._elsewhere.orphan(name, rule, heir)
            if rule == "adopt" and live is not None:
                ended = self._children.receiver(name)
                await self._queue.move(ended, self._children.receiver(heir))

    def _family_with(self, name: str, live: LiveAgent | None) -> Family:
        """Also one that was removed is a parent still, to those who name it."""
        agents = [each.agent for each in self._registry]
        if live is None and agents:
            agents.append(agents[0].model_copy(update={"name": name, "parent": ""}))
        return Family(agents)

    async def _returns(self, live: LiveAgent) -> bool:
        """Whether it is started again anyway."""
        if live.is_returning:
            return True
        if not is_wanted(live.agent.restart, live.view.state):
            return False
        for kind in ("agent.stopping", "agent.gave_up"):
            event = await self._store.read(find_last(live.agent.name, kind))
            if event is not None and event.data.get("run") == live.agent.run:
                return False
        return True

    async def _stop(self, names: Sequence[str]) -> None:
        """Leaves first."""
        for name in names:
            await self._stopper.stop(name, None)

    async def _adopt(self, parent: str, names: Sequence[str], heir: str) -> None:
        # Their messages first: from then on nothing says any more whose children they were.
        await self._redirect(parent, heir, names)
        for name in names:
            live = self._registry.find(name)
            if live is None:
                continue
            above = "" if heir == ROOT else heir
            live.agent = live.agent.model_copy(update={"parent": above})
            await asyncio.to_thread(sessions.rewrite, self._home, live.agent)
            data = {"run": live.agent.run, "from": parent, "to": heir}
            key = f"adopted:{live.agent.run}:{parent}:{heir}"
            await self._store.append(Draft(time.time(), "child.adopted", name, data, key))
        log.info("adopted", extra={"from": parent, "to": heir, "agents": list(names)})

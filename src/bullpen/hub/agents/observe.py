"""What happens to agents becomes events: observations are folded into views, and what follows is
recorded.

Everybody who learns something of an agent comes here (`watch`, `start`, hooks, approvals, tasks).
What an observation means is decided by `model.state`, what is on disk by `store`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.background import Background
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.fold import fold
from bullpen.model.state import Observation

log = logging.getLogger("bullpen.hub")

RECORD_AGAIN_SECONDS = 2.0


class Observer:
    """Writes to the store, at once or as soon as it can be."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._unrecorded: deque[tuple[Draft, ...]] = deque()

    async def observe(
        self,
        live: LiveAgent,
        seen: Observation | None,
        *notes: Draft,
        along: Callable[[Transaction, Event], None] | None = None,
    ) -> list[Event]:
        """Record what was received and, in the same transaction, the state it leads to; and what
        `along` writes, which is given the first event."""
        before = live.view
        drafts = list(notes)
        if seen is not None:
            live.view = fold(before, seen)
            if live.view != before:
                drafts.append(state_draft(live))
        if along is None:
            return await self._store.append(*drafts) if drafts else []

        def write(transaction: Transaction) -> list[Event]:
            events = transaction.append(*drafts)
            along(transaction, events[0])
            return events

        return await self._store.write(write)

    async def is_stopping(self, live: LiveAgent) -> bool:
        """Whether somebody asked that this run be ended, also of an earlier hub; if it cannot be
        known, that is assumed."""
        agent = live.agent
        if live.is_stopping:
            return True
        try:
            event = await self._store.read(find_last(agent.name, "agent.stopping"))
        except BullpenError:  # an end is shown, however busy the disk is
            return True
        return event is not None and event.data.get("run") == agent.run

    async def record(self, *drafts: Draft) -> None:
        """Record events that come from no observation."""
        await self._store.append(*drafts)

    def surely(self, *drafts: Draft) -> None:
        """Record what has happened as soon as it can be: a full disk must not hide an end."""
        self._unrecorded.append(drafts)
        if len(self._unrecorded) == 1:
            self._background.finish(self._background.begin(self._record_all(), "record events"))

    async def _record_all(self) -> None:
        while self._unrecorded:
            try:
                await self._store.append(*self._unrecorded[0])
            except BullpenError as error:
                log.error("cannot record an event yet", extra={"reason": error.message})
                await asyncio.sleep(RECORD_AGAIN_SECONDS)
            else:
                self._unrecorded.popleft()


def observe_now(live: LiveAgent, seen: Observation) -> bool:
    """Fold an observation in; whether the state is another one now."""
    before = live.view
    live.view = fold(before, seen)
    return live.view.state != before.state


def draft(kind: str, agent: Agent, data: dict[str, Any], key: str = "") -> Draft:
    """An event of the agent's present run; of most kinds a run has one only, whoever writes it."""
    name = kind.partition(".")[2]
    repeats = kind in ("agent.stopping", "agent.conversation")
    unique = "" if repeats else f"{key or name}:{agent.run}"
    fields = {"run": agent.run, "pod": agent.pod, **data}
    return Draft(time=time.time(), kind=kind, agent=agent.name, data=fields, key=unique)


def started_draft(agent: Agent, holder: int | None = None, child: int | None = None) -> Draft:
    """It runs: a program in a terminal is held by that process, a task agent by nobody."""
    held_by = {} if holder is None else {"holder": holder, "child": child}
    return draft("agent.started", agent, {**held_by, "cwd": agent.cwd})


def state_draft(live: LiveAgent) -> Draft:
    """The view that the agent has now."""
    data = live.view.model_dump(mode="json")
    return Draft(time=time.time(), kind="agent.state", agent=live.agent.name, data=data)

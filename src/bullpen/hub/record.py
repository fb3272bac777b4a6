"""What happens to agents becomes events: observations are folded into views, and what follows is
recorded.

Everybody who learns something of an agent comes here (`watch`, `start`, hooks, approvals, tasks).
What an observation means is decided by `model.state`, what is on disk by `store`.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Any

from bullpen.errors import BullpenError
from bullpen.hub.beside import Beside
from bullpen.hub.registry import Live
from bullpen.hub.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Draft, Event
from bullpen.model.state import Observation, fold

log = logging.getLogger("bullpen.hub")

RECORD_AGAIN_SECONDS = 2.0


class Record:
    """Writes to the store, at once or as soon as it can be."""

    def __init__(self, store: Store, beside: Beside) -> None:
        self.store = store
        self.beside = beside
        self._unrecorded: deque[tuple[Draft, ...]] = deque()

    async def observe(self, live: Live, seen: Observation | None, *notes: Draft) -> list[Event]:
        """Record what was received and, in the same transaction, the state it leads to."""
        before = live.view
        drafts = list(notes)
        if seen is not None:
            live.view = fold(before, seen)
            if live.view != before:
                drafts.append(state_draft(live))
        return await self.store.append(*drafts) if drafts else []

    def surely(self, *drafts: Draft) -> None:
        """Record what has happened as soon as it can be: a full disk must not hide an end."""
        self._unrecorded.append(drafts)
        if len(self._unrecorded) == 1:
            self.beside.finish(self.beside.begin(self._record()))

    async def _record(self) -> None:
        while self._unrecorded:
            try:
                await self.store.append(*self._unrecorded[0])
            except BullpenError as error:
                log.error("cannot record an event yet", extra={"reason": error.message})
                await asyncio.sleep(RECORD_AGAIN_SECONDS)
            else:
                self._unrecorded.popleft()


def observe_now(live: Live, seen: Observation) -> bool:
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


def started(agent: Agent, holder: int, child: int) -> Draft:
    """Its program runs, held by that process."""
    data = {"holder": holder, "child": child, "cwd": agent.cwd}
    return draft("agent.started", agent, data)


def state_draft(live: Live) -> Draft:
    """The view that the agent has now."""
    data = live.view.model_dump(mode="json")
    return Draft(time=time.time(), kind="agent.state", agent=live.agent.name, data=data)

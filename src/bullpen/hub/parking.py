"""Rate limits: an agent that was told to wait is parked, and goes on when the limit is reset.

The engine knows which hook means that, and whether it names the reset; where none is named, the
waits grow from one minute to thirty. `plan` is pure. Until when an agent is parked is in its
state, so the next hub goes on where this one was killed; anything that the agent does in between
ends it.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bullpen.engines import ENGINES
from bullpen.hub.deliver import Delivery
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.event import Draft, Event
from bullpen.model.message import BULLPEN, Message
from bullpen.model.state import Idle, Told, View

log = logging.getLogger("bullpen.hub")

SOURCE = "rate limit"
GO_ON = "The rate limit is over. Go on where you were interrupted."
FIRST_SECONDS, MOST_SECONDS = 60.0, 1800.0
# A limit that comes again so soon after a wait is the same one.
SAME_SECONDS = 300.0
JITTER_SHARE, JITTER_SECONDS = 0.1, 60.0


@dataclass(frozen=True)
class Limit:
    """A wait: until when, and the how manieth in a row."""

    until: float
    attempt: int = 1


def plan(now: float, reset: float | None, last: Limit | None) -> Limit:
    """Until when to wait: the reset if it was told, else longer with each time."""
    is_again = last is not None and now < last.until + SAME_SECONDS
    attempt = last.attempt + 1 if last is not None and is_again else 1
    if reset is not None:
        return Limit(max(reset, now), attempt)
    return Limit(now + min(FIRST_SECONDS * 2.0 ** min(attempt - 1, 20), MOST_SECONDS), attempt)


def is_parked(view: View, until: float) -> bool:
    """Whether it still waits for that moment."""
    return isinstance(view.state, Idle) and view.state.limited_until == until


class Parking:
    """Those that wait. `hooked` is told of every hook, after the state that it leads to."""

    def __init__(self, supervisor: Supervisor, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._delivery = delivery
        self._last: dict[str, Limit] = {}  # by run
        self._waking: dict[str, tuple[float, asyncio.Task[None]]] = {}  # by run

    async def load(self) -> None:
        """Wait on for those that an earlier hub had parked."""
        store = self._supervisor.store
        for live in self._supervisor.registry:
            event = await asyncio.to_thread(store.last_of, live.agent.name, "agent.parked")
            limit = _limit_of(event, live.agent.run)
            if limit is not None:
                self._last[live.agent.run] = limit
            state = live.view.state
            if isinstance(state, Idle) and state.limited_until is not None:
                self._wait(live, state.limited_until)

    async def hooked(self, live: Live, hook: Mapping[str, Any]) -> None:
        """Park an agent whose turn ended at a limit. One whose turn ended well starts to count
        anew."""
        now, engine = time.time(), ENGINES.get(live.agent.engine)
        if hook.get("hook_event_name") == "Stop":
            self._last.pop(live.agent.run, None)
        limited = engine.limited(hook, now) if engine else None
        if limited is None or not live.is_running:
            return
        run, reset = live.agent.run, limited.reset
        limit = plan(now, reset, self._last.get(run))
        self._last[run] = limit
        told = Told(
            at=max(now, live.view.told_at),  # the hook itself is older
            source=SOURCE,
            says="its reset was told" if reset is not None else f"wait {limit.attempt}",
            state=Idle(limited_until=limit.until),
        )
        data = {"run": run, "until": limit.until, "attempt": limit.attempt, "is_told": bool(reset)}
        await self._supervisor.record.observe(
            live, told, Draft(now, "agent.parked", live.agent.name, data)
        )
        self._wait(live, limit.until)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event. A state file may say that it works for a moment longer
        than its hook: only then is it parked."""
        for event in events:
            live = self._supervisor.registry.find(event.agent)
            if event.kind != "agent.state" or live is None:
                continue
            state = live.view.state
            until = state.limited_until if isinstance(state, Idle) else None
            if until is not None:
                self._wait(live, until)

    def _wait(self, live: Live, until: float) -> None:
        run = live.agent.run
        if run in self._waking:
            waits_until, task = self._waking[run]
            if waits_until == until:
                return
            task.cancel()
        task = asyncio.create_task(self._wake(live, until), name=f"parked {live.agent.name}")
        self._waking[run] = until, task
        task.add_done_callback(lambda done: self._forget(run, done))

    def _forget(self, run: str, done: asyncio.Task[None]) -> None:
        if run in self._waking and self._waking[run][1] is done:
            del self._waking[run]
        if not done.cancelled() and done.exception() is not None:
            log.error("an agent could not be woken up", exc_info=done.exception())

    async def _wake(self, live: Live, until: float) -> None:
        agent = live.agent
        # Many agents share an account: all at once they would meet the same limit again.
        wait = max(0.0, until - time.time())
        at = until + random.uniform(0, min(JITTER_SECONDS, max(1.0, wait * JITTER_SHARE)))
        while (left := at - time.time()) > 0:
            await asyncio.sleep(min(left, 60.0))  # a timer does not count while a machine sleeps
        if not is_parked(live.view, until):
            return
        key, now = f"resumed:{agent.run}:{until}", time.time()
        # The message first: it waits for as long as the agent is parked. A hub that is killed
        # between the two leaves both to the next, and the id is the same.
        await self._delivery.send(
            Message(id=_id(key), sender=BULLPEN, to=agent.name, text=GO_ON, created=now)
        )
        told = Told(at=max(now, live.view.told_at), source=SOURCE, says="over", state=Idle())
        data = {"run": agent.run, "until": until}
        await self._supervisor.record.observe(
            live, told, Draft(now, "agent.resumed", agent.name, data, key)
        )


def _id(key: str) -> str:
    return f"m-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _limit_of(event: Event | None, run: str) -> Limit | None:
    if event is None or event.data.get("run") != run:
        return None
    return Limit(float(event.data["until"]), int(event.data["attempt"]))

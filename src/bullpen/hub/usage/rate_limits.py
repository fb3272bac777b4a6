"""Rate limits: an agent that was told to wait is parked, and goes on when the limit is reset.

The engine knows which hook means that, and whether it names the reset; where none is named, the
waits grow from one minute to thirty. `plan` is pure. Until when an agent is parked is in its
state, so the next hub goes on where this one was killed; anything that an agent in a terminal does
in between ends it. A task agent is parked by `tasks/limits`, and gets no tasks until it is resumed;
the event `agent.parked` tells the next hub of it. A new start of the agent is a new try.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError
from bullpen.hub.agents.observe import Observer, observe_now, state_draft
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft, Event
from bullpen.model.message import BULLPEN, Message
from bullpen.model.state import EngineReport, Idle, View

log = logging.getLogger("bullpen.hub")

SOURCE = "rate limit"
GO_ON = "The rate limit is over. Go on where you were interrupted."
FIRST_SECONDS, MOST_SECONDS = 60.0, 1800.0
# A limit that comes again so soon after a wait is the same one.
SAME_SECONDS = 300.0
JITTER_SHARE, JITTER_SECONDS = 0.1, 60.0


@dataclass(frozen=True)
class RateLimit:
    """A wait: until when, and the how manieth in a row."""

    until: float
    attempt: int = 1
    is_told: bool = False  # the API named the end


def plan(now: float, reset: float | None, last: RateLimit | None) -> RateLimit:
    """Until when to wait: the reset if it was told, else longer with each time."""
    is_again = last is not None and now < last.until + SAME_SECONDS
    attempt = last.attempt + 1 if last is not None and is_again else 1
    if reset is not None:
        return RateLimit(max(reset, now), attempt, is_told=True)
    return RateLimit(now + min(FIRST_SECONDS * 2.0 ** min(attempt - 1, 20), MOST_SECONDS), attempt)


def is_parked(view: View, until: float) -> bool:
    """Whether it still waits for that moment."""
    return isinstance(view.state, Idle) and view.state.limited_until == until


class RateLimits:
    """The agents that wait for a rate limit to end. `hooked` is told of every hook, after the state
    that it leads to."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        observer: Observer,
        delivery: Delivery,
        background: Background,
    ) -> None:
        self._store = store
        self._registry = registry
        self._observer = observer
        self._delivery = delivery
        self._background = background
        self._last: dict[str, RateLimit] = {}  # by run
        self._parked: dict[str, float] = {}  # task agents, by run: until when they get no tasks
        self._waking: dict[str, tuple[float, asyncio.Task[None]]] = {}  # by run

    async def load(self) -> None:
        """Wait on for those that an earlier hub had parked."""
        for live in self._registry:
            event = await self._store.read(find_last(live.agent.name, "agent.parked"))
            limit = _limit_of(event, live.agent.run)
            if limit is not None:
                self._last[live.agent.run] = limit
            if live.agent.takes_tasks:
                self._park_again(live, limit)
            state = live.view.state
            if isinstance(state, Idle) and state.limited_until is not None:
                self._wait(live, state.limited_until)

    def _park_again(self, live: LiveAgent, limit: RateLimit | None) -> None:
        """A task agent whose hub was killed: its view begins anew with each hub."""
        if limit is not None and limit.until > time.time() and live.is_running:
            self._parked[live.agent.run] = limit.until
            observe_now(live, _report(live, "as the hub before knew", limit.until))
            self._wait(live, limit.until)

    async def hooked(self, live: LiveAgent, hook: Mapping[str, Any]) -> None:
        """Park an agent whose turn ended at a limit. One whose turn ended well starts to count
        anew."""
        now, engine = time.time(), ENGINES.get(live.agent.engine)
        if hook.get("hook_event_name") == "Stop":
            self._last.pop(live.agent.run, None)
        limited = engine.limited(hook, now) if engine else None
        # What a task meets is told by its run, which a hub that comes later can read, too.
        if limited is None or not live.is_running or live.agent.takes_tasks:
            return
        await self._park(live, plan(now, limited.reset, self._last.get(live.agent.run)))

    # ── task agents ──

    def parked_until(self, live: LiveAgent) -> float | None:
        """Until when a task agent gets no tasks; None: it may have them."""
        return self._parked.get(live.agent.run)

    async def park_task_agent(self, live: LiveAgent, reset: float | None) -> RateLimit:
        """Its task met a limit, which ends then if that was told."""
        limit = plan(time.time(), reset, self._last.get(live.agent.run))
        await self._park_surely(live, limit)
        return limit

    async def park_along(self, live: LiveAgent, limit: RateLimit, first: str) -> None:
        """A task agent on the account of `first`, which met that limit."""
        if live.is_running and self._parked.get(live.agent.run, 0.0) < limit.until:
            await self._park_surely(live, limit, first)

    async def _park_surely(self, live: LiveAgent, limit: RateLimit, first: str = "") -> None:
        self._parked[live.agent.run] = limit.until
        try:
            await self._park(live, limit, first)
        except BullpenError as error:  # a full disk: it waits all the same
            log.error("cannot record a rate limit", extra={"why": error.message})
        self._wait(live, limit.until)

    # ── both ──

    async def _park(self, live: LiveAgent, limit: RateLimit, first: str = "") -> None:
        """Say until when it waits. `first`: who met the limit, if another agent did; what works
        then goes on."""
        run = live.agent.run
        self._last[run] = limit
        met = "its reset was told" if limit.is_told else f"wait {limit.attempt}"
        says = f"{first} met it" if first else met
        is_at_work = bool(first) and live.view.is_working
        observation = None if is_at_work else _report(live, says, limit.until)
        data = {"run": run, "first": first, **asdict(limit)}
        event = Draft(time.time(), "agent.parked", live.agent.name, data)
        await self._observer.observe(live, observation, event)
        self._wait(live, limit.until)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event. A state file may say that it works for a moment longer
        than its hook: only then is it parked."""
        for event in events:
            live = self._registry.find(event.agent)
            if event.kind != "agent.state" or live is None:
                continue
            state = live.view.state
            until = state.limited_until if isinstance(state, Idle) else None
            if until is not None:
                self._wait(live, until)

    def _wait(self, live: LiveAgent, until: float) -> None:
        run = live.agent.run
        if run in self._waking:
            waits_until, task = self._waking[run]
            if waits_until == until:
                return
            task.cancel()
        task = self._background.begin(self._wake(live, until), f"parked {live.agent.name}")
        self._waking[run] = until, task
        task.add_done_callback(lambda done: self._forget(run, done))

    def _forget(self, run: str, done: asyncio.Task[None]) -> None:
        if run in self._waking and self._waking[run][1] is done:
            del self._waking[run]

    async def _wake(self, live: LiveAgent, until: float) -> None:
        agent = live.agent
        # Many agents share an account: all at once they would meet the same limit again.
        wait = max(0.0, until - time.time())
        at = until + random.uniform(0, min(JITTER_SECONDS, max(1.0, wait * JITTER_SHARE)))
        while (left := at - time.time()) > 0:
            await asyncio.sleep(min(left, 60.0))  # a timer does not count while a machine sleeps
        if self._parked.get(agent.run) == until:
            self._free(live, until)
            return
        if not is_parked(live.view, until):
            return
        key, now = f"resumed:{agent.run}:{until}", time.time()
        # The message first: it waits for as long as the agent is parked. A hub that is killed
        # between the two leaves both to the next, and the id is the same.
        await self._delivery.send(
            Message(id=_id(key), sender=BULLPEN, to=agent.name, text=GO_ON, created=now)
        )
        await self._observer.observe(live, _report(live, "over"), _resumed(live, until))

    def _free(self, live: LiveAgent, until: float) -> None:
        """A task agent may have tasks again; `tasks/queue` hears of it by the event."""
        del self._parked[live.agent.run]
        if live.is_running:
            if is_parked(live.view, until):
                observe_now(live, _report(live, "over"))
            self._observer.surely(_resumed(live, until), state_draft(live))


def _report(live: LiveAgent, says: str, until: float | None = None) -> EngineReport:
    # The hook that told of the limit is older.
    at = max(time.time(), live.view.told_at)
    return EngineReport(at=at, source=SOURCE, says=says, state=Idle(limited_until=until))


def _resumed(live: LiveAgent, until: float) -> Draft:
    agent = live.agent
    data, key = {"run": agent.run, "until": until}, f"resumed:{agent.run}:{until}"
    return Draft(time.time(), "agent.resumed", agent.name, data, key)


def _id(key: str) -> str:
    return f"m-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _limit_of(event: Event | None, run: str) -> RateLimit | None:
    if event is None or event.data.get("run") != run:
        return None
    return RateLimit(float(event.data["until"]), int(event.data["attempt"]))

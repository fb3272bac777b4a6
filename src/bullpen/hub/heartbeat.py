"""Heartbeats: a message to an agent that has been idle for as long as its role says.

Once per idle period: the message's id follows from the run and from when it became idle, so
another hub that comes to the same moment sends the same message. A condition that is not met, or
takes too long, means no message; it is not asked again in that period.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError
from bullpen.hub import sessions, walls
from bullpen.hub.deliver import Delivery
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.message import BULLPEN, Message
from bullpen.model.state import Idle

log = logging.getLogger("bullpen.hub")

CONDITION_SECONDS = 10.0
LONGEST_SLEEP = 60.0  # a timer does not count while a machine sleeps


class Heartbeats:
    """A timer for every agent that is idle and has a heartbeat."""

    def __init__(self, supervisor: Supervisor, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._delivery = delivery
        self._timers: dict[str, tuple[float, asyncio.Task[None]]] = {}  # run -> since, task

    def load(self) -> None:
        """For those that were idle before this hub."""
        for live in self._supervisor.registry:
            self._watch(live)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind == "agent.state":
                live = self._supervisor.registry.find(event.agent)
                if live is not None:
                    self._watch(live)

    def _watch(self, live: Live) -> None:
        run, since = live.agent.run, live.view.since
        known = self._timers.get(run)
        if live.agent.heartbeat is None or (known and known[0] == since):
            return
        if known:
            known[1].cancel()
            del self._timers[run]
        if _is_idle(live, since):
            task = asyncio.create_task(self._wait(live, since), name=f"heart of {live.agent.name}")
            self._timers[run] = since, task
            task.add_done_callback(lambda done: self._ended(live, done))

    def _ended(self, live: Live, done: "asyncio.Task[None]") -> None:
        if not done.cancelled() and done.exception() is not None:
            log.error("a heartbeat failed", exc_info=done.exception())
        if not live.is_running:
            self._timers.pop(live.agent.run, None)

    async def _wait(self, live: Live, since: float) -> None:
        beat = live.agent.heartbeat
        assert beat is not None
        assert beat.idle_timeout is not None
        due = since + beat.idle_timeout.total_seconds()
        while (left := due - time.time()) > 0:
            await asyncio.sleep(min(left, LONGEST_SLEEP))
        if beat.condition and not await asyncio.to_thread(self._is_met, live, beat.condition):
            return
        if _is_idle(live, since):
            await self._delivery.send(
                Message(
                    id=_id(live.agent.run, since),
                    sender=BULLPEN,
                    to=live.agent.name,
                    text=beat.message,
                    created=time.time(),
                )
            )

    def _is_met(self, live: Live, condition: str) -> bool:
        agent = live.agent
        try:
            env = sessions.load_settled(self._supervisor.home, agent.name).whole
            words = ["/bin/sh", "-c", condition]
            if agent.is_sandboxed:
                words, env = self._walled(agent, words, env)
            done = proc.run(words, cwd=Path(agent.cwd), env=env, timeout=CONDITION_SECONDS)
        except (BullpenError, OSError) as error:
            log.warning("no heartbeat", extra={"agent": agent.name, "reason": str(error)})
            return False
        return done.code == 0

    def _walled(
        self, agent: Agent, words: list[str], env: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """In the sandbox of the agent, because its files are what the command looks at."""
        wall = walls.around(self._supervisor.ground, agent, env)
        wrapped = walls.raise_wall(wall, tuple(words), env)
        return list(wrapped.argv), dict(wrapped.env)


def _is_idle(live: Live, since: float) -> bool:
    state = live.view.state
    return isinstance(state, Idle) and state.limited_until is None and live.view.since == since


def _id(run: str, since: float) -> str:
    return f"m-{hashlib.sha256(f'{run}:{since}'.encode()).hexdigest()[:12]}"

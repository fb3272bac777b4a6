"""Heartbeats: a message to an agent that has been idle for as long as its role says.

Once per idle period: the message's id follows from the run and from when it became idle, so
another hub that comes to the same moment sends the same message. A condition that is not met, or
takes too long, is asked again after the same time.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError
from bullpen.hub.agents import sessions
from bullpen.hub.agents.program import plan_check
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.worktrees import add_ports
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.message import BULLPEN, Message
from bullpen.model.state import Idle

log = logging.getLogger("bullpen.hub")

CONDITION_SECONDS = 10.0
LEAST_AGAIN_SECONDS = 30.0  # between two questions for a condition, however short the role's time
LONGEST_SLEEP = 60.0  # a timer does not count while a machine sleeps


class Heartbeats:
    """A timer for every agent that is idle and has a heartbeat."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        delivery: Delivery,
        background: Background,
    ) -> None:
        self._context = context
        self._registry = registry
        self._delivery = delivery
        self._background = background
        self._timers: dict[str, tuple[float, asyncio.Task[None]]] = {}  # run -> since, task

    async def load(self) -> None:
        """For those that were idle before this hub."""
        for live in self._registry:
            self._watch(live)

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, on the loop."""
        for event in events:
            if event.kind == "agent.state":
                live = self._registry.find(event.agent)
                if live is not None:
                    self._watch(live)

    def _watch(self, live: LiveAgent) -> None:
        run, since = live.agent.run, live.view.since
        known = self._timers.get(run)
        if live.agent.heartbeat is None or (known and known[0] == since):
            return
        if known:
            known[1].cancel()
            del self._timers[run]
        if _is_idle(live, since):
            name = f"heart of {live.agent.name}"
            task = self._background.begin(self._wait(live, since), name)
            self._timers[run] = since, task
            task.add_done_callback(lambda _done: self._ended(live))

    def _ended(self, live: LiveAgent) -> None:
        if not live.is_running:
            self._timers.pop(live.agent.run, None)

    async def _wait(self, live: LiveAgent, since: float) -> None:
        beat = live.agent.heartbeat
        assert beat is not None
        assert beat.idle_timeout is not None
        seconds = beat.idle_timeout.total_seconds()
        await _sleep_until(since + seconds)
        while beat.condition and _is_idle(live, since):
            if await asyncio.to_thread(self._is_met, live, beat.condition):
                break
            await _sleep_until(time.time() + max(seconds, LEAST_AGAIN_SECONDS))
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

    def _is_met(self, live: LiveAgent, condition: str) -> bool:
        agent = live.agent
        try:
            launch_env = sessions.load_launch_env(self._context.home, agent.name)
            env = add_ports(launch_env, agent).whole
            words = ["/bin/sh", "-c", condition]
            if agent.is_sandboxed:
                words, env = self._in_sandbox(agent, words, env)
            done = proc.run(words, cwd=Path(agent.cwd), env=env, timeout=CONDITION_SECONDS)
        except (BullpenError, OSError) as error:
            log.warning("no heartbeat", extra={"agent": agent.name, "reason": str(error)})
            return False
        return done.code == 0

    def _in_sandbox(
        self, agent: Agent, words: list[str], env: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """In the sandbox of the agent, because its files are what the command looks at."""
        sandbox_plan = plan_check(self._context, agent, env)
        wrapped = sandbox_policy.wrap_command(sandbox_plan, tuple(words), env)
        return list(wrapped.argv), dict(wrapped.env)


async def _sleep_until(due: float) -> None:
    while (left := due - time.time()) > 0:
        await asyncio.sleep(min(left, LONGEST_SLEEP))


def _is_idle(live: LiveAgent, since: float) -> bool:
    state = live.view.state
    return isinstance(state, Idle) and state.limited_until is None and live.view.since == since


def _id(run: str, since: float) -> str:
    return f"m-{hashlib.sha256(f'{run}:{since}'.encode()).hexdigest()[:12]}"

"""Rate limits that tasks meet: the agent waits, and every task agent on its account with it.

Called by `driver`, whose task then goes back to the queue. An account is what an engine logs in
with. `usage/rate_limits` parks and resumes one agent; this says whom else a limit concerns, also
one that an agent in a terminal has met.
"""

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping

from bullpen.engines import get_engine
from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.tasks.run_plan import load_variables, load_worker
from bullpen.hub.usage.rate_limits import RateLimit, RateLimits
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.task import Task

# What an agent in a terminal says of a limit is a hook, which it could make up: others wait for no
# longer than this on its word, and then try themselves.
WORD_SECONDS = 1800.0


class TaskLimits:
    """Whom a rate limit concerns."""

    def __init__(
        self, home: Home, registry: Registry, rate_limits: RateLimits, background: Background
    ) -> None:
        self._home = home
        self._registry = registry
        self._rate_limits = rate_limits
        self._background = background
        self._believed: dict[str, float] = {}  # when a run's word was last taken

    def parked_until(self, live: LiveAgent) -> float | None:
        """Until when that agent gets no tasks; None: it may have them."""
        return self._rate_limits.parked_until(live)

    async def met(self, live: LiveAgent, task: Task, words: str) -> float:
        """Its task met a limit; until when everybody of that account waits. `words` may name the
        end of the limit."""
        reset = get_engine(live.agent.engine).find_reset(words, time.time())
        limit = await self._rate_limits.park_task_agent(live, reset)
        await self._park_others(live, limit, task)
        return limit.until

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event: an agent in a terminal may have met a limit."""
        for event in events:
            live = self._registry.find(event.agent)
            if event.kind == "agent.parked" and live is not None and not live.agent.takes_tasks:
                self._believe(live, float(event.data["until"]), int(event.data["attempt"]))

    def _believe(self, live: LiveAgent, until: float, attempt: int) -> None:
        now, run = time.time(), live.agent.run
        believed = believed_until(until, now, self._believed.get(run, 0.0))
        if believed is not None:
            self._believed[run] = now
            work = self._park_others(live, RateLimit(believed, attempt))
            self._background.begin(work, f"account of {live.agent.name}")

    async def _park_others(
        self, first: LiveAgent, limit: RateLimit, task: Task | None = None
    ) -> None:
        accounts = await asyncio.to_thread(self._accounts, first.agent, task)
        for name in accounts:
            other = self._registry.find(name)
            if other is not None and other is not first:
                await self._rate_limits.park_along(other, limit, first.agent.name)

    def _accounts(self, first: Agent, task: Task | None) -> list[str]:
        """The task agents on the account of `first`, by name. Reads the disk."""
        account = self._account(first, task)
        others = [each.agent for each in self._registry if each.agent.takes_tasks]
        return [agent.name for agent in others if account and self._account(agent) == account]

    def _account(self, agent: Agent, task: Task | None = None) -> str:
        """Empty if its files cannot be read."""
        try:
            launched = sessions.load_launch_env(self._home, agent.name).env
            keys = credentials.engine_variables(self._home, agent.engine)
            own = load_worker(self._home, agent).role.env
            of_task = load_variables(self._home, task) if task is not None else {}
        except BullpenError:
            return ""
        return account_of(agent, {**launched, **keys, **own, **of_task})


def believed_until(until: float, now: float, last: float) -> float | None:
    """Until when others wait on the word of an agent in a terminal, which was last believed then;
    None: not again so soon, or words alone would keep them waiting. Pure."""
    return None if now < last + 2 * WORD_SECONDS else min(until, now + WORD_SECONDS)


def account_of(agent: Agent, env: Mapping[str, str]) -> str:
    """What an agent with these variables logs in with, as a key that gives nothing of it away. A
    plain program has an account of its own. Pure."""
    login = credentials.LOGINS.get(agent.engine)
    if login is None:
        return f"agent {agent.name}"
    given = next((f"{name}={env[name]}" for name in login.reads if env.get(name)), "")
    own = f"{login.variable}={env.get(login.variable, '')}"
    return f"{agent.engine} {hashlib.sha256((given or own).encode()).hexdigest()}"

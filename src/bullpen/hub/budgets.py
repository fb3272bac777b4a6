"""Budgets, enforced outside the agent: warned at 80 %, stopped at 100 %.

An agent is bound by its own budget, by those of the agents that it descends from (what children
spend is part of it) and by its pod's. Which of them are used up follows from what was counted, at
any time and in any hub: nothing is remembered but the events, which are recorded once per run.

At the end of a budget the event comes first, then the turn is interrupted; from then on
`refusal` has a reason, which the hooks give to the engine for every tool and every prompt. An
interrupt that did not end the turn is tried again.
"""

import asyncio
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError
from bullpen.hub import holders
from bullpen.hub.deliver import Delivery
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.hub.usage import Usage
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.message import BULLPEN, Message
from bullpen.model.role import Budget
from bullpen.model.state import Blocked, Working
from bullpen.model.usage import Level, Verdict, added_up, check, is_set

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 2.0  # while somebody works who has only so many minutes
PAUSE_SECONDS = 0.1  # hundreds of agents report all the time
INTERRUPT_AGAIN_SECONDS = 10.0
KINDS: dict[Level, str] = {"warned": "budget.warned", "reached": "budget.reached"}


@dataclass(frozen=True)
class Scope:
    """One budget that binds an agent: whose it is, and who spends from it."""

    kind: Literal["agent", "pod"]
    name: str
    budget: Budget
    members: tuple[Agent, ...]


class Family:
    """Who descends from whom, and who is in which pod, at one moment."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._by_name: dict[str, Agent] = {}
        self._children: dict[str, list[Agent]] = defaultdict(list)
        self._pods: dict[str, list[Agent]] = defaultdict(list)
        for agent in agents:
            self._by_name[agent.name] = agent
            self._children[agent.parent].append(agent)
            self._pods[agent.pod].append(agent)

    def scopes_of(self, agent: Agent) -> Iterator[Scope]:
        """The budgets that bind an agent."""
        for one in self._line(agent):
            if is_set(one.budget):
                yield Scope("agent", one.name, one.budget, tuple(self._under(one)))
        if agent.pod and is_set(agent.pod_budget):
            yield Scope("pod", agent.pod, agent.pod_budget, tuple(self._pods[agent.pod]))

    def _line(self, agent: Agent) -> list[Agent]:
        """It, its parent and so on; each once, whatever the records say."""
        found: dict[str, Agent] = {}
        one: Agent | None = agent
        while one is not None and one.name not in found:
            found[one.name] = one
            one = self._by_name.get(one.parent) if one.parent else None
        return list(found.values())

    def _under(self, agent: Agent) -> list[Agent]:
        """It and all that descend from it."""
        found = {agent.name: agent}
        left = [agent]
        while left:
            new = [one for one in self._children[left.pop().name] if one.name not in found]
            found |= {one.name: one for one in new}
            left += new
        return list(found.values())


class Budgets:
    """Watches what is used; wired by `main`, asked by the hooks."""

    def __init__(self, supervisor: Supervisor, usage: Usage, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._delivery = delivery
        self._registry = supervisor.registry
        self._usage = usage
        self._said: set[str] = set()  # keys of events that are recorded
        self._interrupted: dict[str, float] = {}  # run -> when

    def _family(self) -> Family:
        return Family(live.agent for live in self._registry)

    def _verdicts(self, agent: Agent, family: Family, now: float) -> list[tuple[Scope, Verdict]]:
        """How each budget that binds an agent stands."""
        found = []
        for scope in family.scopes_of(agent):
            totals = added_up(self._usage.of(each) for each in scope.members)
            seconds = sum(self._usage.work_seconds(each, now) for each in scope.members)
            found.append((scope, check(scope.budget, totals, seconds / 60)))
        return found

    def refusal(self, name: str) -> str:
        """Why an agent may do nothing more; empty while it may."""
        live = self._registry.find(name)
        if live is None or not _may_be_bound(live.agent):  # asked at every tool call
            return ""
        reached = [
            f"{_whose(scope, name)} is used up: {verdict.words()}"
            for scope, verdict in self._verdicts(live.agent, self._family(), time.time())
            if verdict.level == "reached"
        ]
        if not reached:
            return ""
        return f"{reached[0]}. Stop here; only a person can raise it, and start you again."

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._usage.changed.clear()
            is_timed = False
            family = self._family()
            for live in list(self._registry):
                if live.is_running and _may_be_bound(live.agent):
                    try:
                        is_timed |= await self._look(live, family)
                    except Exception:  # one agent's trouble must not free the others of theirs
                        log.exception("cannot enforce a budget", extra={"agent": live.agent.name})
                        is_timed = True
            try:
                async with asyncio.timeout(LOOK_SECONDS if is_timed else None):
                    await self._usage.changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self, live: Live, family: Family) -> bool:
        """Do what is due for one agent; whether it has to be looked at again soon."""
        agent, now = live.agent, time.time()
        found = self._verdicts(agent, family, now)
        for scope, verdict in found:
            if verdict.level != "ok":
                await self._say(live, scope, verdict)
        is_over = any(verdict.level == "reached" for _, verdict in found)
        is_busy = isinstance(live.view.state, Working | Blocked)
        if is_over and is_busy:
            await self._interrupt(live, now)
        has_minutes = any(
            scope.budget.minutes is not None and any(map(self._usage.is_working, scope.members))
            for scope, _ in found
        )
        return has_minutes or (is_over and is_busy)

    async def _say(self, live: Live, scope: Scope, verdict: Verdict) -> None:
        agent = live.agent
        key = f"budget:{verdict.level}:{scope.kind}:{scope.name}:{verdict.what}:{agent.run}"
        if key in self._said:
            return
        text = f"{_whose(scope, agent.name)}: {verdict.words()}"
        data = {
            "run": agent.run,
            "parent": agent.parent,
            "pod": agent.pod,
            "of": scope.kind,
            "name": scope.name,
            "what": verdict.what,
            "used": round(verdict.used, 6),
            "limit": verdict.limit,
            "text": text,
        }
        draft = Draft(time.time(), KINDS[verdict.level], agent.name, data, key)
        await self._tell_parent(live, verdict, text, key)
        await self._supervisor.store.append(draft)
        self._said.add(key)

    async def _tell_parent(self, live: Live, verdict: Verdict, text: str, key: str) -> None:
        parent = live.agent.parent
        if verdict.level != "reached" or self._registry.find(parent) is None:
            return
        await self._delivery.send(
            Message(
                id=f"m-{hashlib.sha256(key.encode()).hexdigest()[:12]}",
                sender=BULLPEN,
                to=parent,
                text=f"{live.agent.name} was stopped. {text}",
                created=time.time(),
            )
        )

    async def _interrupt(self, live: Live, now: float) -> None:
        """Once, and again only for a turn that goes on: what ends a turn does other things to a
        program that waits."""
        agent = live.agent
        if now - self._interrupted.get(agent.run, 0.0) < INTERRUPT_AGAIN_SECONDS:
            return
        self._interrupted[agent.run] = now
        engine = ENGINES.get(agent.engine)
        if engine is None or not engine.interrupt:
            return
        try:
            await holders.type_into(self._supervisor.home.socket(agent.name), engine.interrupt)
        except (OSError, TimeoutError, BullpenError) as error:
            log.warning("cannot interrupt", extra={"agent": agent.name, "reason": str(error)})


def _may_be_bound(agent: Agent) -> bool:
    return bool(agent.parent) or is_set(agent.budget) or is_set(agent.pod_budget)


def _whose(scope: Scope, name: str) -> str:
    if scope.kind == "pod":
        return f"the budget of pod {scope.name}"
    return "your budget" if scope.name == name else f"the budget of {scope.name}"

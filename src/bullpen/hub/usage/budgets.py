"""Budgets, enforced outside the agent: warned at 80 %, stopped at 100 %.

An agent is bound by its own budget, by those of the agents that it descends from (what children
spend is part of it, also when they are removed, and what tasks cost that it gave) and by its pod's.
Which of them are used up follows from what was counted, at any time and in any hub: nothing is
remembered but the events, which are recorded once per run.

At the end of a budget the event comes first, then the turn is interrupted; from then on
`refusal` has a reason, which the hooks give to the engine for every tool and every prompt. An
interrupt that did not end the turn is tried again.
"""

import asyncio
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.holders import link as holder_link
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.store.store import Store
from bullpen.hub.usage.count import Usage, key_of
from bullpen.hub.usage.delegated import DelegatedCosts, Spent
from bullpen.hub.usage.rows import Key
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.message import BULLPEN, Message
from bullpen.model.rights import LIMITS, least_budget, share
from bullpen.model.role import Budget
from bullpen.model.state import Blocked, Working
from bullpen.model.usage import BudgetVerdict, Level, Totals, added_up, check, is_set

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
    removed: tuple[Key, ...] = ()  # descendants of members: what they spent stays spent


class BudgetFamily:
    """Who descends from whom, and who is in which pod, at one moment. `children_of` knows also
    those that are removed."""

    def __init__(
        self, agents: Iterable[Agent], children_of: Callable[[Key], Iterable[Key]]
    ) -> None:
        self._children_of = children_of
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
                yield Scope("agent", one.name, one.budget, *self._under([one]))
        if agent.pod and is_set(agent.pod_budget):
            yield Scope("pod", agent.pod, agent.pod_budget, *self._under(self._pods[agent.pod]))

    def family_of(self, agent: Agent) -> tuple[tuple[Agent, ...], tuple[Key, ...]]:
        """It and all that descend from it: who is there, and who is removed."""
        return self._under([agent])

    def below(self, agent: Agent) -> set[Key]:
        """All that descend from it, also who is removed."""
        there, removed = self._under([agent])
        return {*map(key_of, there), *removed} - {key_of(agent)}

    def _line(self, agent: Agent) -> list[Agent]:
        """It, its parent and so on; each once, whatever the records say."""
        ancestors: dict[str, Agent] = {}
        one: Agent | None = agent
        while one is not None and one.name not in ancestors:
            ancestors[one.name] = one
            one = self._by_name.get(one.parent) if one.parent else None
        return list(ancestors.values())

    def _under(self, agents: Iterable[Agent]) -> tuple[tuple[Agent, ...], tuple[Key, ...]]:
        """These agents and all that descend from them: who is there, and who is removed."""
        left = [key_of(agent) for agent in agents]
        family = dict.fromkeys(left)
        while left:
            key = left.pop()
            new = [each for each in self._below(key) if each not in family]
            family |= dict.fromkeys(new)
            left += new
        there = {key: one for key in family if (one := self._find(key)) is not None}
        return tuple(there.values()), tuple(key for key in family if key not in there)

    def _below(self, key: Key) -> Iterator[Key]:
        if self._find(key) is not None:
            yield from map(key_of, self._children[key[0]])
        for child in self._children_of(key):
            agent = self._find(child)
            # Of who is there its own record counts, as long as it names somebody who is there.
            if agent is None or (agent.parent and agent.parent not in self._by_name):
                yield child

    def _find(self, key: Key) -> Agent | None:
        agent = self._by_name.get(key[0])
        return agent if agent is not None and agent.created == key[1] else None


class Budgets:
    """Watches what is used; wired by `parts`, asked by the hooks."""

    def __init__(
        self,
        home: Home,
        store: Store,
        registry: Registry,
        usage: Usage,
        delivery: Delivery,
        delegated: DelegatedCosts,
    ) -> None:
        self._home = home
        self._store = store
        self._registry = registry
        self._usage = usage
        self._delivery = delivery
        self._delegated = delegated
        self._recorded: dict[str, set[str]] = {}  # run -> keys of events that are recorded
        self._interrupted: dict[str, float] = {}  # run -> when

    def family(self) -> BudgetFamily:
        """As it is now."""
        return BudgetFamily((live.agent for live in self._registry), self._usage.children_of)

    def _verdicts(
        self, agent: Agent, family: BudgetFamily, now: float
    ) -> list[tuple[Scope, BudgetVerdict]]:
        """How each budget that binds an agent stands."""
        verdicts = []
        for scope in family.scopes_of(agent):
            totals, minutes = self._used(scope.members, scope.removed, now)
            verdicts.append((scope, check(scope.budget, totals, minutes)))
        return verdicts

    def refusal(self, name: str) -> str:
        """Why an agent may do nothing more; empty while it may."""
        live = self._registry.find(name)
        if live is None or not _may_be_bound(live.agent):  # asked at every tool call
            return ""
        reached = [
            f"{_whose(scope, name)} is used up: {verdict.words()}"
            for scope, verdict in self._verdicts(live.agent, self.family(), time.time())
            if verdict.level == "reached"
        ]
        if not reached:
            return ""
        return f"{reached[0]}. Stop here; only a person can raise it, and start you again."

    def share(self, agent: Agent, count: int) -> Budget | None:
        """What each of so many new children of that agent gets: a part of what is left in its own
        budget, or in the nearest one above it, and in its pod's; after what the family spent and
        what living children may still spend. When a child ends, what it did not spend is there
        again. None: nothing is left."""
        family, now = self.family(), time.time()
        budget = Budget()
        scopes = list(family.scopes_of(agent))
        # Those above it have given it its own: that is out of theirs already.
        nearest = [scope for scope in scopes if scope.kind == "agent"][:1]
        for scope in (*nearest, *(scope for scope in scopes if scope.kind == "pod")):
            part = share(scope.budget, self._taken(scope, family, now), count)
            if part is None:
                return None
            budget = least_budget(budget, part)
        return budget

    def spent_by(self, agent: Agent) -> Spent:
        """It and all that descend from it, up to now."""
        used, minutes = self._used(*self.family().family_of(agent), time.time())
        return Spent(tokens=used.tokens, usd=used.usd, minutes=minutes)

    def _taken(self, scope: Scope, family: BudgetFamily, now: float) -> dict[str, float]:
        """Of a budget: what was spent, and what others may still spend. Who was given a part of it
        takes that part, or what it and all below it have spent, if that is more."""
        there = {key_of(each): each for each in scope.members}
        left = {*there, *scope.removed}
        parts: list[tuple[Budget, set[Key]]] = []
        for each in scope.members:
            if self._holds_part(each, scope):
                keys = {key_of(each), *family.below(each)} & left
                parts.append((each.budget, keys))
                left -= keys
        taken = dict.fromkeys(LIMITS, 0.0)
        for budget, keys in (*parts, (Budget(), left)):
            members = [there[key] for key in keys if key in there]
            used, minutes = self._used(members, keys - there.keys(), now)
            spent = {"tokens": float(used.tokens), "usd": used.usd, "minutes": minutes}
            for key in keys:
                for name, reserved in self._delegated.reserved(key).items():
                    spent[name] += reserved
            for name in LIMITS:
                taken[name] += max(spent[name], getattr(budget, name) or 0.0)
        return taken

    def _used(
        self, members: Iterable[Agent], removed: Iterable[Key], now: float
    ) -> tuple[Totals, float]:
        """By all of them and the tasks that they gave, and the minutes of work, up to now."""
        members, removed = list(members), list(removed)
        gone = added_up(map(self._usage.of_key, removed))
        seconds = sum(self._usage.work_seconds(each, now) for each in members)
        keys = (*map(key_of, members), *removed)
        given = sum(map(self._delegated.spent, keys), Spent())
        others = Totals(input=given.tokens, usd=given.usd)
        totals = added_up([gone, others, *map(self._usage.of, members)])
        return totals, (gone.work_seconds + seconds) / 60 + given.minutes

    def _holds_part(self, agent: Agent, scope: Scope) -> bool:
        """Whether it is a living child that was given a part of that budget."""
        live = self._registry.find(agent.name)
        is_child = scope.kind == "agent" and agent.parent == scope.name
        return is_child and live is not None and live.is_running and is_set(agent.budget)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._usage.changed.clear()
            is_timed = False
            self._forget_ended()
            family = self.family()
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

    def _forget_ended(self) -> None:
        """Runs that are over: nothing more is said of them."""
        running = {live.agent.run for live in self._registry if live.is_running}
        self._recorded = {run: keys for run, keys in self._recorded.items() if run in running}
        self._interrupted = {run: at for run, at in self._interrupted.items() if run in running}

    async def _look(self, live: LiveAgent, family: BudgetFamily) -> bool:
        """Do what is due for one agent; whether it has to be looked at again soon."""
        agent, now = live.agent, time.time()
        verdicts = self._verdicts(agent, family, now)
        for scope, verdict in verdicts:
            if verdict.level != "ok":
                await self._say(live, scope, verdict)
        is_over = any(verdict.level == "reached" for _, verdict in verdicts)
        is_busy = isinstance(live.view.state, Working | Blocked)
        if is_over and is_busy:
            await self._interrupt(live, now)
        has_minutes = any(
            scope.budget.minutes is not None and any(map(self._usage.is_working, scope.members))
            for scope, _ in verdicts
        )
        return has_minutes or (is_over and is_busy)

    async def _say(self, live: LiveAgent, scope: Scope, verdict: BudgetVerdict) -> None:
        agent = live.agent
        key = f"budget:{verdict.level}:{scope.kind}:{scope.name}:{verdict.what}:{agent.run}"
        keys = self._recorded.setdefault(agent.run, set())
        if key in keys:
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
        await self._store.append(draft)
        keys.add(key)

    async def _tell_parent(
        self, live: LiveAgent, verdict: BudgetVerdict, text: str, key: str
    ) -> None:
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

    async def _interrupt(self, live: LiveAgent, now: float) -> None:
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
            await holder_link.type_into(self._home.socket(agent.name), engine.interrupt)
        except (OSError, TimeoutError, BullpenError) as error:
            log.warning("cannot interrupt", extra={"agent": agent.name, "reason": str(error)})


def _may_be_bound(agent: Agent) -> bool:
    return bool(agent.parent) or is_set(agent.budget) or is_set(agent.pod_budget)


def _whose(scope: Scope, name: str) -> str:
    if scope.kind == "pod":
        return f"the budget of pod {scope.name}"
    return "your budget" if scope.name == name else f"the budget of {scope.name}"

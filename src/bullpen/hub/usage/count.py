"""What agents use: counted from their telemetry and their states, kept in the database as long as
they are there, and for a year after that.

Tokens and cost come from the metrics, which Claude Code and Gemini CLI send as totals of their
process (cumulative, as the engine asks Claude Code to; 2.1.325 does): an export that was lost is
made good by the next. Only the difference to the highest figure of its series is added, in the
transaction that stores that figure, so an export that comes twice, late, or after a crash between
storing and answering adds nothing. What is in no metric, and all of Codex, comes from the log,
where each entry counts once by what is in it. Figures of the kind that holds only what is new
(delta) count once likewise. Only Claude Code says what something cost.

Time of work is what lies between the states that the event log tells of, up to the event that
was last accounted for; what came after it is read again by the next hub.

What a child spent is its family's as long as one above it is there: whose child each was is stored
with the first that it used, so that `budgets` finds it when the child is removed.

Whose it is follows from the token, never from what an export says of itself. `metrics`
decides which entries count, `rows` reads and writes the database, `budgets` holds the limits.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import Registry
from bullpen.hub.store.events import list_after
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.usage.metrics import UsageAmount, usage_of_logs, usage_of_metrics
from bullpen.hub.usage.otlp import LogEntry, Metrics
from bullpen.hub.usage.rows import (
    Key,
    add_counted,
    add_parents,
    add_work,
    first_day,
    forget,
    list_by,
    list_labels,
    list_points,
    list_quiet,
    load,
)
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.usage import NOTHING, By, Labels, Totals, UsageReport, added_up
from bullpen.model.usage_series import SeriesBy, Step, UsageSeries, make_series, starts_between

log = logging.getLogger("bullpen.hub")


# An agent says itself what its models are called: made-up ones must not fill the disk.
MOST_MODELS, OTHER_MODEL = 40, "other"
# Some fifty for each process that an agent ever was. One that lives sends them all the time.
MOST_SERIES, STALE_SECONDS = 20_000, 6 * 3600.0
PRUNE_SECONDS = 3600.0
FLUSH_SECONDS = 20.0
EVENTS_AT_ONCE = 1_000
EXPIRE_AT_ONCE = 200  # agents, in one write, so that others get in between


class Usage:
    """The counts. Works before `load`, which brings back what earlier hubs counted."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self.changed = asyncio.Event()  # for who watches budgets
        self._totals: dict[Key, Totals] = {}
        self._parents: dict[Key, Key] = {}  # of all that had one, also of who is removed
        self._children: dict[Key, set[Key]] = defaultdict(set)
        self._new_parents: dict[Key, Key] = {}  # not yet in the database
        self._models: dict[str, set[str]] = defaultdict(set)
        # By name, the highest figure of each series and when it came last.
        self._series: dict[str, dict[bytes, tuple[float, float]]] = defaultdict(dict)
        self._pruned = 0.0
        # Since when each agent is in its state, and whether that is work.
        self._clocks: dict[str, tuple[float, bool]] = {}
        self._work: dict[tuple[str, ...], float] = {}  # not yet in the database
        self._mark: int | None = None  # the last event that is accounted for
        self._is_ahead = False  # of the database
        self._early: list[Event] = []
        self._news = asyncio.Event()

    async def load(self) -> None:
        """What earlier hubs counted, and the work that the last one did not come to count."""
        names = [live.agent.name for live in self._registry]
        stored = await self._store.write(
            lambda transaction: load(transaction.connection, names, self._registry.broken)
        )
        self._totals = dict(stored.totals)
        for child, parent in stored.parents.items():
            self._set_parent(child, parent)
        self._models = defaultdict(set, stored.models)
        for agent, key, value in stored.series:
            self._series[agent][key] = value, time.time()
        self._clocks = dict(stored.clocks)
        mark = stored.mark
        if mark is None:  # nothing was ever counted here: from now on
            mark = self._store.last_id
            now = time.time()
            for live in self._registry:
                self._clocks[live.agent.name] = now, live.view.is_working
        while page := await self._store.read(
            list_after(mark, EVENTS_AT_ONCE, kinds={"agent.state"})
        ):
            self._account(page)
            mark = page[-1].id
        self._mark, self._is_ahead = mark, True
        early, self._early = self._early, []
        self.notice(early)
        await self.flush()  # a hub that is killed soon must not leave it at nothing

    # ── telemetry ──

    async def take_metrics(self, agent: Agent, metrics: Metrics) -> int:
        """Count an export; how many of its figures could not be."""
        figures, rejected = usage_of_metrics(metrics)
        known, now = self._series[agent.name], time.time()
        news = []
        for one in figures:
            # Totals come again every few seconds, nearly always with nothing new in them.
            highest, _ = known.get(one.key, (0.0, 0.0))
            if one.key in known:
                known[one.key] = highest, now
            if one.amount > highest:
                news.append(one)
        await self._take(agent, news, now)
        return metrics.rejected + rejected

    async def take_logs(self, agent: Agent, records: Sequence[LogEntry]) -> None:
        """Count what the log says of requests and tools."""
        await self._take(agent, usage_of_logs(records), time.time())

    async def _take(self, agent: Agent, amounts: Sequence[UsageAmount], now: float) -> None:
        if not amounts:
            return
        name = agent.name
        dropped = self._make_room(name, {one.key for one in amounts if one.is_total}, now)
        is_time_to_prune = now - self._pruned > PRUNE_SECONDS
        self._note_line(agent)
        parents = dict(self._new_parents)

        def write(transaction: Transaction) -> Totals:
            database, key_of = transaction.connection, self._key_of(agent, now)
            add_parents(database, parents)
            return add_counted(database, name, amounts, key_of, now, is_time_to_prune, dropped)

        added = await self._store.write(write)
        self._forget_written(parents)
        if is_time_to_prune:
            self._pruned = now
        known = self._series[name]
        for key in dropped:
            known.pop(key, None)
        for one in amounts:
            if one.is_total:
                highest, _ = known.get(one.key, (0.0, 0.0))
                known[one.key] = max(one.amount, highest), now
        self._add(agent, added)

    def _make_room(self, name: str, keys: set[bytes], now: float) -> list[bytes]:
        """The series that are forgotten for new ones: of processes that report no more."""
        known = self._series[name]
        if len(known.keys() | keys) <= MOST_SERIES:
            return []
        stale = [
            key
            for key, (_, seen) in known.items()
            if seen < now - STALE_SECONDS and key not in keys
        ]
        if len(known.keys() | keys) - len(stale) > MOST_SERIES:
            raise BullpenError(f"{name} has sent more than {MOST_SERIES} different counters")
        return stale

    def _key_of(self, agent: Agent, at: float) -> Callable[[str], tuple[str, ...]]:
        """The row of the table that something of a model belongs to."""
        known = self._models[agent.name]

        def key(model: str) -> tuple[str, ...]:
            if model and model not in known:
                if len(known) >= MOST_MODELS:
                    model = OTHER_MODEL
                else:
                    known.add(model)
            return (agent.name, agent.created, agent.role, agent.pod, model, day_of(at))

        return key

    def _add(self, agent: Agent, added: Totals) -> None:
        if added != NOTHING:
            key = key_of(agent)
            self._totals[key] = self._totals.get(key, NOTHING) + added
            self.changed.set()

    # ── whose children they are ──

    def _note_line(self, agent: Agent) -> None:
        """Remember whose child it is, and so on above it: any of them may be removed."""
        seen: set[str] = set()
        while agent.name not in seen and (above := self._registry.find(agent.parent)) is not None:
            seen.add(agent.name)
            child, parent = key_of(agent), key_of(above.agent)
            if self._parents.get(child) != parent:
                self._set_parent(child, parent)
                self._new_parents[child] = parent
            agent = above.agent

    def _set_parent(self, child: Key, parent: Key) -> None:
        if child in self._parents:
            self._children[self._parents[child]].discard(child)
        self._parents[child] = parent
        self._children[parent].add(child)

    def _forget_written(self, parents: Mapping[Key, Key]) -> None:
        for child, parent in parents.items():
            if self._new_parents.get(child) == parent:
                del self._new_parents[child]

    # ── time of work ──

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, in their order, on the loop."""
        if self._mark is None:
            self._early += [event for event in events if event.kind == "agent.state"]
            return
        mark = self._mark
        states = [event for event in events if event.kind == "agent.state" and event.id > mark]
        if states:
            self._account(states)
            self._mark = states[-1].id
            self._news.set()

    def _account(self, events: Sequence[Event]) -> None:
        self._is_ahead = True
        for event in events:
            live = self._registry.find(event.agent)
            before = self._clocks.get(event.agent)
            if live is not None and before is not None and before[1]:
                seconds = max(0.0, event.time - before[0])  # a clock may be set back
                key = self._key_of(live.agent, event.time)("")
                self._work[key] = self._work.get(key, 0.0) + seconds
                self._note_line(live.agent)
                self._add(live.agent, Totals(work_seconds=seconds))
            is_working = _is_work(event.data)
            if before is None or before[1] != is_working:
                self.changed.set()
            self._clocks[event.agent] = event.time, is_working

    async def run(self) -> None:
        """Store the time of work now and then; what is not stored yet is in the event log."""
        while True:
            await self._news.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            self._news.clear()
            try:
                await self.flush()
            except BullpenError as error:
                log.error("cannot store the time of work yet", extra={"reason": error.message})
                self._news.set()

    async def flush(self) -> None:
        """Store the time of work, and up to which event it goes."""
        self._forget_removed()
        if not self._is_ahead:
            return
        work, clocks, mark = self._work, dict(self._clocks), self._mark
        parents = dict(self._new_parents)
        self._work, self._is_ahead = {}, False

        def write(transaction: Transaction) -> None:
            add_parents(transaction.connection, parents)
            add_work(transaction.connection, work, clocks, mark)

        try:
            await self._store.write(write)
            self._forget_written(parents)
        except BaseException:
            self._is_ahead = True
            for key, seconds in work.items():
                self._work[key] = self._work.get(key, 0.0) + seconds
            raise

    def _forget_removed(self) -> None:
        """What is needed of those only that are there. Not of one that works: it is about to be."""
        there = {live.agent.name for live in self._registry}
        gone = {name for name, (_, is_working) in self._clocks.items() if not is_working} - there
        for name in gone:
            del self._clocks[name]
            self._series.pop(name, None)
            self._models.pop(name, None)

    # ── what is old ──

    async def expire(self, before: float) -> int:
        """Forget the agents that are gone, that used nothing since then, and above whom nobody is
        left to whom it would count; how many."""
        quiet = await self._store.read(lambda database: list_quiet(database, day_of(before)))
        gone = [key for key in quiet if not self._counts(key)]
        for start in range(0, len(gone), EXPIRE_AT_ONCE):
            some = gone[start : start + EXPIRE_AT_ONCE]
            for key in some:
                self._totals.pop(key, None)
            links = [link for key in some for link in self._unneeded_links(key)]
            await self._store.write(partial(_forget, some, links))
        return len(gone)

    def _counts(self, key: Key) -> bool:
        """Whether it is there, or one above it."""
        line: list[Key] = []
        at: Key | None = key
        while at is not None and at not in line:
            live = self._registry.find(at[0])
            if at[0] in self._registry.broken or (live is not None and key_of(live.agent) == at):
                return True
            line.append(at)
            at = self._parents.get(at)
        return False

    def _unneeded_links(self, key: Key) -> Iterator[Key]:
        """Takes out who is a child in a line whose end is forgotten, the lowest first."""
        while key not in self._totals and not self._children.get(key) and key in self._parents:
            parent = self._parents.pop(key)
            self._children[parent].discard(key)
            yield key
            key = parent

    # ── answers ──

    def of(self, agent: Agent) -> Totals:
        """What an agent has used since it was made; its work up to its last change of state."""
        return self.of_key(key_of(agent))

    def of_key(self, key: Key) -> Totals:
        """The same of one that may be removed."""
        return self._totals.get(key, NOTHING)

    def children_of(self, key: Key) -> Collection[Key]:
        """The children that it had and that used anything, also those that are removed."""
        return self._children.get(key, ())

    def by_name(self) -> dict[str, Totals]:
        """The same for all agents that there are."""
        return {live.agent.name: self.of(live.agent) for live in self._registry}

    def work_seconds(self, agent: Agent, now: float) -> float:
        """The time it has worked, also what is just going on."""
        since, is_working = self._clocks.get(agent.name, (now, False))
        return self.of(agent).work_seconds + (max(0.0, now - since) if is_working else 0.0)

    def is_working(self, agent: Agent) -> bool:
        return self._clocks.get(agent.name, (0.0, False))[1]

    async def report(self, by: By, since_seconds: float | None, now: float) -> UsageReport:
        """Everything that is known to have been used, or since a day, by something."""
        since = "" if since_seconds is None else day_of(now - since_seconds)
        await self.flush()  # work that is only in memory would be missing
        rows = tuple(await self._store.read(lambda database: list_by(database, by, since)))
        return UsageReport(by=by, since=since, rows=rows, total=added_up(row.used for row in rows))

    async def series(
        self, by: SeriesBy, step: Step, since_seconds: float | None, now: float
    ) -> UsageSeries:
        """What was used over time, by something."""
        if since_seconds is None:
            since = await self._store.read(first_day) or day_of(now)
        else:
            since = day_of(now - since_seconds)
        starts = starts_between(since, datetime.fromtimestamp(now).astimezone(), step)
        points = await self._store.read(
            lambda database: list_points(database, by, step, starts[0][:10])
        )
        return make_series(by, step, starts, points)

    async def by_labels(self) -> list[tuple[Labels, Totals]]:
        """The same by agent, role, pod and model."""
        await self.flush()
        return await self._store.read(list_labels)


def _forget(agents: Sequence[Key], children: Sequence[Key], transaction: Transaction) -> None:
    forget(transaction.connection, agents, children)


def key_of(agent: Agent) -> Key:
    """Who it is in the tables: a name may be another agent's later."""
    return agent.name, agent.created


def _is_work(view: Mapping[str, Any]) -> bool:
    """`View.is_working` of a recorded view; parsing each as a whole would cost too much."""
    state = _word(view.get("state"))
    if view.get("stage") and state not in ("exited", "lost"):
        state = _word(view.get("told"))
    return state == "working"


def _word(state: object) -> object:
    return state.get("state") if isinstance(state, dict) else None


def day_of(at: float) -> str:
    """The day here."""
    return time.strftime("%Y-%m-%d", time.localtime(max(0.0, at)))

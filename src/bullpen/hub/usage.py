"""What agents use: counted from their telemetry and their states, kept in the database for ever.

Tokens and cost come from the metrics, which Claude Code and Gemini CLI send as totals of their
process (cumulative, as the engine asks Claude Code to; 2.1.325 does): an export that was lost is
made good by the next. Only the difference to the highest figure of its series is added, in the
transaction that stores that figure, so an export that comes twice, late, or after a crash between
storing and answering adds nothing. What is in no metric, and all of Codex, comes from the log,
where each entry counts once by what is in it. Figures of the kind that holds only what is new
(delta) count once likewise. Only Claude Code says what something cost.

Time of work is what lies between the states that the event log tells of, up to the event that
was last accounted for; what came after it is read again by the next hub.

Whose it is follows from the token, never from what an export says of itself. What
counts is `counted`'s, the rows are `usage_rows`'. Nothing here judges: budgets are `budgets`'.
"""

import asyncio
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bullpen.errors import BullpenError
from bullpen.hub.counted import Counted, counted_logs, counted_metrics
from bullpen.hub.otlp import Metrics, Record
from bullpen.hub.registry import Registry
from bullpen.hub.store import Store
from bullpen.hub.usage_rows import add_counted, add_work, list_by, list_labels, load
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.state import Working
from bullpen.model.usage import NOTHING, By, Labels, Report, Totals, added_up

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

# An agent says itself what its models are called: made-up ones must not fill the disk.
MOST_MODELS, OTHER_MODEL = 40, "other"
# Some fifty for each process that an agent ever was. One that lives sends them all the time.
MOST_SERIES, STALE_SECONDS = 20_000, 6 * 3600.0
SEEN_SECONDS, PRUNE_SECONDS = 2 * 86400.0, 3600.0  # an exporter tries for minutes
FLUSH_SECONDS = 20.0
EVENTS_AT_ONCE = 1_000


class Usage:
    """The counts. Works before `load`, which brings back what earlier hubs counted."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self.changed = asyncio.Event()  # for who watches budgets
        self._totals: dict[tuple[str, str], Totals] = {}  # by name and birth
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
        found = await self._write(lambda database: load(database, names, self._registry.broken))
        self._totals = dict(found.totals)
        self._models = defaultdict(set, found.models)
        for agent, key, value in found.series:
            self._series[agent][key] = value, time.time()
        self._clocks = dict(found.clocks)
        mark = found.mark
        if mark is None:  # nothing was ever counted here: from now on
            mark = await asyncio.to_thread(self._store.last_id)
            now = time.time()
            for live in self._registry:
                self._clocks[live.agent.name] = now, isinstance(live.view.state, Working)
        while page := await asyncio.to_thread(
            self._store.after, mark, EVENTS_AT_ONCE, kinds={"agent.state"}
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
        found, rejected = counted_metrics(metrics)
        known, now = self._series[agent.name], time.time()
        news = []
        for one in found:
            # Totals come again every few seconds, nearly always with nothing new in them.
            highest, _ = known.get(one.key, (0.0, 0.0))
            if one.key in known:
                known[one.key] = highest, now
            if one.amount > highest:
                news.append(one)
        await self._take(agent, news, now)
        return metrics.rejected + rejected

    async def take_logs(self, agent: Agent, records: Sequence[Record]) -> None:
        """Count what the log says of requests and tools."""
        await self._take(agent, counted_logs(records), time.time())

    async def _take(self, agent: Agent, counted: Sequence[Counted], now: float) -> None:
        if not counted:
            return
        name = agent.name
        dropped = self._make_room(name, {one.key for one in counted if one.is_total}, now)
        prune = now - SEEN_SECONDS if now - self._pruned > PRUNE_SECONDS else None
        added = await self._write(
            lambda database: add_counted(
                database, name, counted, self._key_of(agent, now), now, prune, dropped
            )
        )
        if prune is not None:
            self._pruned = now
        known = self._series[name]
        for key in dropped:
            known.pop(key, None)
        for one in counted:
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
            key = agent.name, agent.created
            self._totals[key] = self._totals.get(key, NOTHING) + added
            self.changed.set()

    # ── time of work ──

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event, in their order, on the loop."""
        if self._mark is None:
            self._early += [event for event in events if event.kind == "agent.state"]
            return
        mark = self._mark
        found = [event for event in events if event.kind == "agent.state" and event.id > mark]
        if found:
            self._account(found)
            self._mark = found[-1].id
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
                self._add(live.agent, Totals(work_seconds=seconds))
            state = event.data.get("state")
            is_working = isinstance(state, dict) and state.get("state") == "working"
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
        if not self._is_ahead:
            return
        work, clocks, mark = self._work, dict(self._clocks), self._mark
        self._work, self._is_ahead = {}, False
        try:
            await self._write(lambda database: add_work(database, work, clocks, mark))
        except BaseException:
            self._is_ahead = True
            for key, seconds in work.items():
                self._work[key] = self._work.get(key, 0.0) + seconds
            raise

    # ── answers ──

    def of(self, agent: Agent) -> Totals:
        """What an agent has used since it was made; its work up to its last change of state."""
        return self._totals.get((agent.name, agent.created), NOTHING)

    def by_name(self) -> dict[str, Totals]:
        """The same for all agents that there are."""
        return {live.agent.name: self.of(live.agent) for live in self._registry}

    def work_seconds(self, agent: Agent, now: float) -> float:
        """The time it has worked, also what is just going on."""
        since, is_working = self._clocks.get(agent.name, (now, False))
        return self.of(agent).work_seconds + (max(0.0, now - since) if is_working else 0.0)

    def is_working(self, agent: Agent) -> bool:
        return self._clocks.get(agent.name, (0.0, False))[1]

    async def report(self, by: By, since_seconds: float | None, now: float) -> Report:
        """Everything that was ever used, or since a day, by something."""
        since = "" if since_seconds is None else day_of(now - since_seconds)
        await self.flush()  # work that is only in memory would be missing
        rows = tuple(await self._write(lambda database: list_by(database, by, since)))
        return Report(by=by, since=since, rows=rows, total=added_up(row.used for row in rows))

    async def by_labels(self) -> list[tuple[Labels, Totals]]:
        """All that was ever used by agent, role, pod and model."""
        await self.flush()
        return await self._write(list_labels)

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(function))


def day_of(at: float) -> str:
    """The day here."""
    return time.strftime("%Y-%m-%d", time.localtime(max(0.0, at)))

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

Whose it is follows from the token, never from what an export says of itself. Nothing here
judges: budgets are `hub/budgets.py`'s.
"""

import asyncio
import logging
import math
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bullpen.errors import BullpenError
from bullpen.hub.otlp import LARGEST, Attributes, Metrics, Record, number, text
from bullpen.hub.registry import Registry
from bullpen.hub.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.state import Working
from bullpen.model.usage import FIELDS, NOTHING, By, Report, Row, Totals, added_up

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

# By the metric, what the kinds of tokens count as.
TOKENS = {
    "claude_code.token.usage": {
        "input": "input",
        "output": "output",
        "cacheRead": "cache_read",
        "cacheCreation": "cache_write",
    },
    # Its thoughts are beside its output, what tools of the API brought in beside its input; what
    # came from the cache is within its input, and two totals cannot be told apart afterwards.
    "gemini_cli.token.usage": {
        "input": "input",
        "tool": "input",
        "output": "output",
        "thought": "output",
        "cache": "cache_read",
    },
}
MODEL_CHARACTERS = 80
# An agent says itself what its models are called: made-up ones must not fill the disk.
MOST_MODELS, OTHER_MODEL = 40, "other"
# Some fifty for each process that an agent ever was. One that lives sends them all the time.
MOST_SERIES, STALE_SECONDS = 20_000, 6 * 3600.0
MOST_USD = 1e6
MOST_TOOL_SECONDS = 7 * 86400.0
SEEN_SECONDS, PRUNE_SECONDS = 2 * 86400.0, 3600.0  # an exporter tries for minutes
FLUSH_SECONDS = 20.0
EVENTS_AT_ONCE = 1_000
REPORTED_COLUMNS = {"agent": "agent", "pod": "pod", "role": "role", "day": "day"}

FRACTIONS = ("usd", "tool_seconds", "work_seconds")
KEY = ("agent", "born", "role", "pod", "model", "day")
ADD = (
    f"INSERT INTO usage ({', '.join((*KEY, *FIELDS))})"
    f" VALUES ({', '.join('?' * (len(KEY) + len(FIELDS)))})"
    f" ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET"
    f" {', '.join(f'{name} = {name} + excluded.{name}' for name in FIELDS)}"
)
SUMS = ", ".join(f"TOTAL({name})" for name in FIELDS)  # of floats: SUM of integers may overflow


@dataclass(frozen=True)
class Counted:
    """Something to add, once: `key` says what it is, a total also how much it is by now."""

    field: str
    model: str
    amount: float
    key: bytes
    is_total: bool = False


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
        found = await self._write(lambda database: _load(database, names, self._registry.broken))
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
            lambda database: _store(
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
            await self._write(lambda database: _flush(database, work, clocks, mark))
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
        column = REPORTED_COLUMNS[by]
        select = f"SELECT {column}, {SUMS} FROM usage WHERE day >= ? GROUP BY {column} ORDER BY 1"
        found = await self._write(lambda database: database.execute(select, (since,)).fetchall())
        rows = tuple(Row(name=name, used=_totals(sums)) for name, *sums in found)
        return Report(by=by, since=since, rows=rows, total=added_up(row.used for row in rows))

    async def by_labels(self) -> list[tuple[tuple[str, str, str, str], Totals]]:
        """All that was ever used by agent, role, pod and model."""
        await self.flush()
        columns = "agent, role, pod, model"
        select = f"SELECT {columns}, {SUMS} FROM usage GROUP BY {columns} ORDER BY {columns}"
        found = await self._write(lambda database: database.execute(select).fetchall())
        return [((row[0], row[1], row[2], row[3]), _totals(row[4:])) for row in found]

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._store.write(function))


def day_of(at: float) -> str:
    """The day here."""
    return time.strftime("%Y-%m-%d", time.localtime(max(0.0, at)))


# ── what is counted ──────────────────────────────────────────────────────────


def counted_metrics(metrics: Metrics) -> tuple[list[Counted], int]:
    """What of an export counts, and how many of its figures cannot be."""
    found: list[Counted] = []
    rejected = 0
    for point in metrics.points:
        field = _field_of(point.metric, point.attributes)
        if not field:
            continue
        is_whole = point.value.is_integer() if field != "usd" else point.value <= MOST_USD
        if not is_whole:
            rejected += 1
            continue
        key = point.series if point.is_cumulative else point.key
        model = _model(point.attributes)
        found.append(Counted(field, model, point.value, key, is_total=point.is_cumulative))
    return found, rejected


def _field_of(metric: str, attributes: Attributes) -> str:
    match metric:
        case "claude_code.cost.usage":
            return "usd"
        # Refusals are in it as well, each of them twice.
        case "gemini_cli.api.request.count" if number(attributes.get("status_code")) == 200:
            return "requests"
        case _ if metric in TOKENS:
            return TOKENS[metric].get(text(attributes.get("type")), "")
        case _:
            return ""


def counted_logs(records: Iterable[Record]) -> list[Counted]:
    """What of a log counts: each request that was answered, each tool with its time."""
    found = []
    for record in records:
        match record.name:
            case "api_request":
                found.append(Counted("requests", _model(record.attributes), 1, record.key))
            case "codex.sse_event":
                found += _codex_response(record)
            case "tool_result" | "codex.tool_result" | "gemini_cli.tool_call":
                seconds = number(record.attributes.get("duration_ms")) / 1000
                if not (math.isfinite(seconds) and 0 <= seconds <= MOST_TOOL_SECONDS):
                    seconds = 0.0
                found.append(Counted("tool_calls", "", 1, record.key))
                found.append(Counted("tool_seconds", "", seconds, record.key))
    return found


def _codex_response(record: Record) -> list[Counted]:
    """A request that was answered. The end of one is told twice, once with what it used; what
    came from the cache is within its input, and its thoughts within its output."""
    told = record.attributes
    if told.get("event.kind") != "response.completed" or "input_token_count" not in told:
        return []
    names = ("input_token_count", "cached_token_count", "output_token_count")
    whole, cached, output = (number(told.get(name, 0)) for name in names)
    amounts = {"requests": 1.0, "input": whole - cached, "cache_read": cached, "output": output}
    model = _model(told)
    return [
        Counted(field, model, amount, record.key)
        for field, amount in amounts.items()
        if 0 <= amount <= LARGEST and amount.is_integer()
    ]


def _model(attributes: Attributes) -> str:
    return text(attributes.get("model"))[:MODEL_CHARACTERS]


# ── in the writer's thread ───────────────────────────────────────────────────


def _store(
    database: sqlite3.Connection,
    agent: str,
    counted: Sequence[Counted],
    key_of: Callable[[str], tuple[str, ...]],
    now: float,
    prune: float | None,
    dropped: Sequence[bytes],
) -> Totals:
    """Add what is new; how much that was."""
    for series in dropped:
        database.execute("DELETE FROM usage_series WHERE agent = ? AND series = ?", (agent, series))
    if prune is not None:
        database.execute("DELETE FROM usage_seen WHERE at < ?", (prune,))
    rows: dict[tuple[str, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    is_new: dict[bytes, bool] = {}
    for one in counted:
        amount = one.amount
        if one.is_total:
            amount = _raise_total(database, agent, one)
        else:
            if one.key not in is_new:  # two things may be told by one entry
                is_new[one.key] = _note(database, agent, one.key, now)
            amount = amount if is_new[one.key] else 0.0
        if amount > 0:
            rows[key_of(one.model)][one.field] += amount
    for key, amounts in rows.items():
        _add(database, key, amounts)
    return added_up(map(_of, rows.values()))


def _raise_total(database: sqlite3.Connection, agent: str, one: Counted) -> float:
    """By how much it is more than ever before."""
    select = "SELECT value FROM usage_series WHERE agent = ? AND series = ?"
    row = database.execute(select, (agent, one.key)).fetchone()
    before: float = row[0] if row else 0.0
    if one.amount > before:
        replace = "INSERT OR REPLACE INTO usage_series (agent, series, value) VALUES (?, ?, ?)"
        database.execute(replace, (agent, one.key, one.amount))
    return max(0.0, one.amount - before)


def _note(database: sqlite3.Connection, agent: str, key: bytes, now: float) -> bool:
    """Whether it comes for the first time."""
    insert = "INSERT OR IGNORE INTO usage_seen (agent, key, at) VALUES (?, ?, ?)"
    return database.execute(insert, (agent, key, now)).rowcount == 1


def _add(database: sqlite3.Connection, key: tuple[str, ...], amounts: Mapping[str, float]) -> None:
    totals = _of(amounts)
    database.execute(ADD, (*key, *(getattr(totals, name) for name in FIELDS)))


def _of(amounts: Mapping[str, float]) -> Totals:
    return _totals([amounts.get(name, 0) for name in FIELDS])


def _totals(values: Sequence[float]) -> Totals:
    named = zip(FIELDS, values, strict=True)
    return Totals.model_validate(
        {name: value if name in FRACTIONS else round(value) for name, value in named}
    )


def _flush(
    database: sqlite3.Connection,
    work: Mapping[tuple[str, ...], float],
    clocks: Mapping[str, tuple[float, bool]],
    mark: int | None,
) -> None:
    for key, seconds in work.items():
        _add(database, key, {"work_seconds": seconds})
    if mark is None:
        return
    database.execute("DELETE FROM usage_clocks")
    insert = "INSERT INTO usage_clocks (agent, at, is_working) VALUES (?, ?, ?)"
    database.executemany(insert, [(name, at, working) for name, (at, working) in clocks.items()])
    database.execute("INSERT OR REPLACE INTO usage_mark (id, event) VALUES (1, ?)", (mark,))


@dataclass(frozen=True)
class _Found:
    totals: Mapping[tuple[str, str], Totals]
    models: Mapping[str, set[str]]
    series: Sequence[tuple[str, bytes, float]]
    clocks: Mapping[str, tuple[float, bool]]
    mark: int | None


def _load(database: sqlite3.Connection, names: Sequence[str], broken: Iterable[str]) -> _Found:
    # The processes of an agent that is gone cannot report any more.
    there = {*names, *broken}
    for (agent,) in database.execute("SELECT DISTINCT agent FROM usage_series").fetchall():
        if agent not in there:
            database.execute("DELETE FROM usage_series WHERE agent = ?", (agent,))
    totals = database.execute(f"SELECT agent, born, {SUMS} FROM usage GROUP BY agent, born")
    models: dict[str, set[str]] = defaultdict(set)
    for agent, model in database.execute("SELECT DISTINCT agent, model FROM usage"):
        models[agent].add(model)
    series = database.execute("SELECT agent, series, value FROM usage_series")
    clocks = database.execute("SELECT agent, at, is_working FROM usage_clocks")
    mark = database.execute("SELECT event FROM usage_mark").fetchone()
    return _Found(
        {(agent, born): _totals(sums) for agent, born, *sums in totals},
        models,
        series.fetchall(),
        {agent: (at, bool(working)) for agent, at, working in clocks if agent in there},
        mark[0] if mark else None,
    )

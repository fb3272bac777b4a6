"""What agents used, in the database. Called by `count`, in the writer's thread and its transaction.
`count` decides what is counted, and when.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bullpen.hub.usage.metrics import UsageAmount
from bullpen.model.usage import FIELDS, By, Labels, Totals, UsageRow, added_up
from bullpen.model.usage_series import QUARTER_SECONDS, SeriesBy, Step, UsagePoint, start_of

Key = tuple[str, str]  # an agent: its name, and when it was first started

REPORTED_COLUMNS = {"agent": "agent", "pod": "pod", "role": "role", "day": "day"}
FRACTIONS = ("usd", "tool_seconds", "work_seconds")
KEY = ("agent", "born", "role", "pod", "model", "day")
ADD = (
    f"INSERT INTO usage ({', '.join((*KEY, *FIELDS))})"
    f" VALUES ({', '.join('?' * (len(KEY) + len(FIELDS)))})"
    f" ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET"
    f" {', '.join(f'{name} = {name} + excluded.{name}' for name in FIELDS)}"
)
ADD_QUARTER = (
    "INSERT INTO usage_quarters (start, agent, role, pod, tokens, usd) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (start, agent, role, pod) DO UPDATE SET"
    " tokens = tokens + excluded.tokens, usd = usd + excluded.usd"
)
SEEN_SECONDS = 2 * 86400.0  # an exporter tries for minutes
QUARTERS_SECONDS = 9 * 86400.0  # a day more than anybody may ask for
SUMS = ", ".join(f"TOTAL({name})" for name in FIELDS)  # of floats: SUM of integers may overflow


def add_counted(
    database: sqlite3.Connection,
    agent: str,
    counted: Sequence[UsageAmount],
    key_of: Callable[[str], tuple[str, ...]],
    now: float,
    is_time_to_prune: bool,
    dropped: Sequence[bytes],
) -> Totals:
    """Add what is new; how much that was."""
    for series in dropped:
        database.execute("DELETE FROM usage_series WHERE agent = ? AND series = ?", (agent, series))
    if is_time_to_prune:
        database.execute("DELETE FROM usage_seen WHERE at < ?", (now - SEEN_SECONDS,))
        old = now - QUARTERS_SECONDS
        database.execute("DELETE FROM usage_quarters WHERE start < ?", (old,))
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
        _add_quarter(database, key, _of(amounts), now)
    return added_up(map(_of, rows.values()))


def _raise_total(database: sqlite3.Connection, agent: str, one: UsageAmount) -> float:
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


def _add_quarter(
    database: sqlite3.Connection, key: tuple[str, ...], used: Totals, now: float
) -> None:
    if used.tokens or used.usd:
        agent, _, role, pod, *_ = key
        start = int(now) // QUARTER_SECONDS * QUARTER_SECONDS
        database.execute(ADD_QUARTER, (start, agent, role, pod, used.tokens, used.usd))


def _of(amounts: Mapping[str, float]) -> Totals:
    return _totals([amounts.get(name, 0) for name in FIELDS])


def _totals(values: Sequence[float]) -> Totals:
    named = zip(FIELDS, values, strict=True)
    return Totals.model_validate(
        {name: value if name in FRACTIONS else round(value) for name, value in named}
    )


def add_parents(database: sqlite3.Connection, parents: Mapping[Key, Key]) -> None:
    """Say whose children these are."""
    replace = (
        "INSERT OR REPLACE INTO usage_parents (agent, born, parent, parent_born)"
        " VALUES (?, ?, ?, ?)"
    )
    database.executemany(replace, [(*child, *parent) for child, parent in parents.items()])


def add_work(
    database: sqlite3.Connection,
    work: Mapping[tuple[str, ...], float],
    clocks: Mapping[str, tuple[float, bool]],
    mark: int | None,
) -> None:
    """Add times of work, and say up to which event they go."""
    for key, seconds in work.items():
        _add(database, key, {"work_seconds": seconds})
    if mark is None:
        return
    database.execute("DELETE FROM usage_clocks")
    insert = "INSERT INTO usage_clocks (agent, at, is_working) VALUES (?, ?, ?)"
    database.executemany(insert, [(name, at, working) for name, (at, working) in clocks.items()])
    database.execute("INSERT OR REPLACE INTO usage_mark (id, event) VALUES (1, ?)", (mark,))


@dataclass(frozen=True)
class StoredUsage:
    """What earlier hubs counted."""

    totals: Mapping[Key, Totals]
    parents: Mapping[Key, Key]
    models: Mapping[str, set[str]]
    series: Sequence[tuple[str, bytes, float]]
    clocks: Mapping[str, tuple[float, bool]]
    mark: int | None


def load(database: sqlite3.Connection, names: Sequence[str], broken: Iterable[str]) -> StoredUsage:
    """Everything, but for agents that are gone."""
    # The processes of an agent that is gone cannot report any more.
    there = {*names, *broken}
    for (agent,) in database.execute("SELECT DISTINCT agent FROM usage_series").fetchall():
        if agent not in there:
            database.execute("DELETE FROM usage_series WHERE agent = ?", (agent,))
    totals = database.execute(f"SELECT agent, born, {SUMS} FROM usage GROUP BY agent, born")
    parents = database.execute("SELECT agent, born, parent, parent_born FROM usage_parents")
    models: dict[str, set[str]] = defaultdict(set)
    for agent, model in database.execute("SELECT DISTINCT agent, model FROM usage"):
        models[agent].add(model)
    series = database.execute("SELECT agent, series, value FROM usage_series")
    clocks = database.execute("SELECT agent, at, is_working FROM usage_clocks")
    mark = database.execute("SELECT event FROM usage_mark").fetchone()
    return StoredUsage(
        {(agent, born): _totals(sums) for agent, born, *sums in totals},
        {(agent, born): (parent, parent_born) for agent, born, parent, parent_born in parents},
        models,
        series.fetchall(),
        {agent: (at, bool(working)) for agent, at, working in clocks if agent in there},
        mark[0] if mark else None,
    )


def list_by(database: sqlite3.Connection, by: By, since: str) -> list[UsageRow]:
    """What was used since that day, by something."""
    column = REPORTED_COLUMNS[by]
    select = f"SELECT {column}, {SUMS} FROM usage WHERE day >= ? GROUP BY {column} ORDER BY 1"
    rows = database.execute(select, (since,))
    return [UsageRow(name=name, used=_totals(sums)) for name, *sums in rows]


def list_points(
    database: sqlite3.Connection, by: SeriesBy, step: Step, since: str
) -> list[UsagePoint]:
    """What was used since that day in each step of time, by something."""
    if step == "1d":
        select = (
            f"SELECT {by}, day, TOTAL(input + output + cache_write), TOTAL(usd) FROM usage"
            f" WHERE day >= ? GROUP BY {by}, day"
        )
        rows = database.execute(select, (since,))
        return [UsagePoint(name, day, round(tokens), usd) for name, day, tokens, usd in rows]
    begin = datetime.fromisoformat(since).timestamp() if since else 0.0
    select = (
        f"SELECT {by}, start, TOTAL(tokens), TOTAL(usd) FROM usage_quarters"
        f" WHERE start >= ? GROUP BY {by}, start"
    )
    return [
        UsagePoint(
            name, start_of(datetime.fromtimestamp(start).astimezone(), step), round(tokens), usd
        )
        for name, start, tokens, usd in database.execute(select, (begin,))
    ]


def list_quiet(database: sqlite3.Connection, day: str) -> list[Key]:
    """The agents that used nothing since that day."""
    select = "SELECT agent, born FROM usage GROUP BY agent, born HAVING MAX(day) < ?"
    return database.execute(select, (day,)).fetchall()


def forget(database: sqlite3.Connection, agents: Sequence[Key], children: Sequence[Key]) -> None:
    """Delete what those agents used, and whose children these were."""
    database.executemany("DELETE FROM usage WHERE agent = ? AND born = ?", agents)
    database.executemany("DELETE FROM usage_parents WHERE agent = ? AND born = ?", children)


def first_day(database: sqlite3.Connection) -> str:
    """The first day on which anything was used; empty if there is none."""
    (day,) = database.execute("SELECT MIN(day) FROM usage").fetchone()
    return day or ""


def list_labels(database: sqlite3.Connection) -> list[tuple[Labels, Totals]]:
    """All that was ever used by agent, role, pod and model."""
    columns = "agent, role, pod, model"
    select = f"SELECT {columns}, {SUMS} FROM usage GROUP BY {columns} ORDER BY {columns}"
    rows = database.execute(select)
    return [((row[0], row[1], row[2], row[3]), _totals(row[4:])) for row in rows]

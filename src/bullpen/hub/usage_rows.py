"""What agents used, in the database. Called in the writer's thread, in its transaction; what is
counted, and when, is `usage`'s.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bullpen.hub.counted import Counted
from bullpen.model.usage import FIELDS, By, Labels, Row, Totals, added_up

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


def add_counted(
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
class Found:
    """What earlier hubs counted."""

    totals: Mapping[tuple[str, str], Totals]
    models: Mapping[str, set[str]]
    series: Sequence[tuple[str, bytes, float]]
    clocks: Mapping[str, tuple[float, bool]]
    mark: int | None


def load(database: sqlite3.Connection, names: Sequence[str], broken: Iterable[str]) -> Found:
    """Everything, but for agents that are gone."""
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
    return Found(
        {(agent, born): _totals(sums) for agent, born, *sums in totals},
        models,
        series.fetchall(),
        {agent: (at, bool(working)) for agent, at, working in clocks if agent in there},
        mark[0] if mark else None,
    )


def list_by(database: sqlite3.Connection, by: By, since: str) -> list[Row]:
    """What was used since that day, by something."""
    column = REPORTED_COLUMNS[by]
    select = f"SELECT {column}, {SUMS} FROM usage WHERE day >= ? GROUP BY {column} ORDER BY 1"
    found = database.execute(select, (since,))
    return [Row(name=name, used=_totals(sums)) for name, *sums in found]


def list_labels(database: sqlite3.Connection) -> list[tuple[Labels, Totals]]:
    """All that was ever used by agent, role, pod and model."""
    columns = "agent, role, pod, model"
    select = f"SELECT {columns}, {SUMS} FROM usage GROUP BY {columns} ORDER BY {columns}"
    found = database.execute(select)
    return [((row[0], row[1], row[2], row[3]), _totals(row[4:])) for row in found]

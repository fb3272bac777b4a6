"""Growth of the log: a page of one agent, approvals at a start, and what retention gives back."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.sizes import compare, growth_row
from bench.table import MEMORY, PREFIX, Row
from bullpen.hub.permissions.asked_events import list_asked
from bullpen.hub.store.events import Query, list_after
from bullpen.hub.store.expire import expire, shrink
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft

AT_ONCE = 500


def rows(short: bool) -> Iterator[Row]:
    """Events of one agent among those of twenty."""
    few, many, rounds = (5_000, 10_000, 3) if short else (25_000, 250_000, 15)
    sizes = (f"{few // 1000}k", f"{many // 1000}k events")
    with _log(few) as small, _log(many) as large:
        for what, query in (
            ("page of one agent", list_after(0, 100, agent="rare")),
            ("approvals at the start", list_asked(200)),
        ):
            works = [partial(_read, log, query) for log in (small, large)]
            yield compare(what, sizes, works, rounds)
        before = _megabytes(small)
        asyncio.run(_forget_all_but(large, few, many))
        yield growth_row("state.db, the rest is old", sizes, before, _megabytes(large), "MB")


def _read(store: Store, query: Query[object]) -> None:
    asyncio.run(store.read(query))


async def _forget_all_but(store: Store, few: int, many: int) -> None:
    """Times of events are their numbers."""
    await expire(store, float(few), float(many), {"rare"})
    await shrink(store)


def _megabytes(store: Store) -> float:
    """Of the database; its log is as long as it ever was."""
    query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    (size,) = asyncio.run(store.read(lambda database: database.execute(query).fetchone()))
    return float(size) / (1 << 20)


@contextmanager
def _log(count: int) -> Iterator[Store]:
    """A log of 20 agents, with the same 100 events of one more and the same approvals in it."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=MEMORY) as scratch:
        store = Store.open(Path(scratch, "state.db"))
        try:
            asyncio.run(_fill(store, count))
            yield store
        finally:
            store.close()


async def _fill(store: Store, count: int) -> None:
    rare = range(0, count, count // 100)
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        await store.append(*(_draft(number, number in rare) for number in numbers))


def _draft(number: int, is_rare: bool) -> Draft:
    data: dict[str, object] = {"run": f"r{number}", "event": "PostToolUse", "text": "x" * 200}
    if is_rare:
        return Draft(float(number), "approval.answered", "rare", {**data, "ask": "a"})
    return Draft(float(number), "hook.received", f"agent-{number % 20}", data)

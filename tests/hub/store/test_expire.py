"""Retention: what is kept of old events, in every table, and the room that is given back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.hub.store import event_index
from bullpen.hub.store import expire as expire_module
from bullpen.hub.store import store as store_module
from bullpen.hub.store.events import find_last, list_after
from bullpen.hub.store.expire import expire, shrink
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft
from tests.hub.store.calls import WAIT, call, put, read, sql, write

SMALL = 16


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for module in (event_index, store_module, expire_module):
        monkeypatch.setattr(module, "BLOCK", SMALL)
    opened = Store.open(tmp_path / "state.db")
    yield opened
    opened.close()


def old_and_new(store: Store, count: int = 200) -> None:
    kinds = ("hook.received", "agent.state")
    put(store, *(Draft(float(n), kinds[n % 2], f"a{n % 10}") for n in range(count)))
    put(store, Draft(1000.0, "hook.received", "new"))


def rows(store: Store, statement: str) -> list[tuple[object, ...]]:
    return write(store, sql(statement)).result(WAIT)


def test_b3_the_last_word_stays_only_of_agents_that_are_there(store: Store) -> None:
    old_and_new(store)
    call(expire(store, 100.0, 1000.0, {"a1"})).result(WAIT)
    left = read(store, list_after(0, 1000))
    assert [(event.kind, event.agent) for event in left] == [
        ("agent.state", "a1"),
        ("hook.received", "new"),
    ]
    assert read(store, list_after(0, 10, agent="a1")) == left[:1]
    assert read(store, find_last("a3", "agent.state")) is None


def test_b3_no_table_tells_of_events_that_are_gone(store: Store) -> None:
    old_and_new(store)
    call(expire(store, 100.0, 1000.0, {"a1"})).result(WAIT)
    known = {("agent.state", "a1"), ("hook.received", "new")}
    assert set(rows(store, "SELECT kind, agent FROM latest")) == known
    blocks = {event.id // SMALL for event in read(store, list_after(0, 1000))}
    assert {block for (block,) in rows(store, "SELECT block FROM event_index")} <= blocks


def test_b3_an_earlier_event_that_a_clock_left_is_still_found(store: Store) -> None:
    put(store, Draft(999.0, "hook.received", "amy"), Draft(1.0, "hook.received", "amy"))
    call(expire(store, 100.0, 1000.0, ())).result(WAIT)
    (left,) = read(store, list_after(0, 10, agent="amy"))
    assert left.time == 999.0


def test_b3_the_file_shrinks_when_much_has_expired(store: Store) -> None:
    text = "x" * 2000
    for _ in range(10):
        put(store, *(Draft(1.0, "hook.received", "amy", {"text": text}) for _ in range(200)))

    def pages() -> int:
        ((count,),) = rows(store, "PRAGMA page_count")
        assert isinstance(count, int)
        return count

    full = pages()
    call(expire(store, 100.0, 1000.0, ())).result(WAIT)
    assert pages() == full
    call(shrink(store)).result(WAIT)
    assert pages() < full / 4
    assert rows(store, "PRAGMA freelist_count") == [(0,)]
    assert put(store, Draft(1.0, "hook.received", "amy"))[0].id == 2001


def test_b3_nothing_to_give_back_is_fine(store: Store) -> None:
    call(shrink(store)).result(WAIT)
    put(store, Draft(1.0, "hook.received", "amy"))
    call(shrink(store)).result(WAIT)

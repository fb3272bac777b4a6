"""Where the events of one agent or kind are: found without reading the log, at any size."""

import contextlib
import itertools
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.hub.store import database, event_index
from bullpen.hub.store import store as store_module
from bullpen.hub.store.events import list_after, list_before, walk_back
from bullpen.hub.store.expire import expire
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft, Event
from tests.hub.store.calls import call, put, read
from tests.waiting import wait_until

KINDS = ["hook.received", "agent.state", "task.state"]
SMALL = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (event_index, store_module):
        monkeypatch.setattr(module, "BLOCK", SMALL)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    try:
        yield store
    finally:
        store.close()


def end_of(path: Path) -> int:
    with contextlib.closing(database.connect(path, read_only=True)) as connection:
        return event_index.find_end(connection)


def drafts(count: int, seed: int) -> list[Draft]:
    chance = random.Random(seed)
    agents = ["", "amy", "bob", *(f"a{number}" for number in range(6))]
    return [
        Draft(float(number), chance.choice(KINDS), chance.choice(agents), {"n": number})
        for number in range(count)
    ]


def assert_all_found(store: Store, events: list[Event]) -> None:
    for agent, kinds in itertools.product((None, "", "amy", "none"), (None, KINDS[:1], KINDS[1:])):
        for after in (0, len(events) // 3, len(events)):
            wanted = [
                event
                for event in events
                if agent in (None, event.agent) and (kinds is None or event.kind in kinds)
            ]
            later = [event for event in wanted if event.id > after]
            for limit in (3, 1000):
                found = read(store, list_after(after, limit, kinds, agent))
                assert found == later[:limit], (agent, kinds, after, limit)
        if kinds is not None:
            back = read(
                store, lambda connection, k=kinds, a=agent: list(walk_back(connection, k, a))
            )
            assert back == wanted[::-1]
        else:
            for before in (1, len(events) // 2, len(events) + 1, 1 << 62):
                earlier = [event for event in wanted if event.id < before][::-1]
                for limit in (3, 1000):
                    found = read(store, list_before(before, limit, agent))
                    assert found == earlier[:limit], (agent, before, limit)


@pytest.mark.parametrize("count", [0, 1, SMALL - 1, SMALL, SMALL + 1, 10 * SMALL + 3])
def test_b3_the_index_finds_what_a_look_at_every_event_finds(
    path: Path, small_blocks: None, count: int
) -> None:
    with opened(path) as store:
        events: list[Event] = []
        for part in _parts(count):
            events += put(store, *part)
        assert_all_found(store, events)
    with opened(path) as store:
        wait_until(lambda: end_of(path) == (count + 1) // SMALL * SMALL)
        assert_all_found(store, events)


def _parts(count: int) -> Iterator[list[Draft]]:
    all_of_them = drafts(count, count)
    for start in range(0, count, 5):
        yield all_of_them[start : start + 5]


def test_b3_a_log_that_no_index_knows_is_indexed_when_nobody_waits(
    path: Path, small_blocks: None
) -> None:
    """As one of an earlier version; or of a hub that was killed on the way."""
    with opened(path) as store:
        events = put(store, *drafts(100, 1))
    for left in (0, 3 * SMALL):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM event_index WHERE block >= ?", (left // SMALL,))
            connection.execute("UPDATE event_index_end SET event = ?", (left,))
            connection.commit()
        with opened(path) as store:
            assert_all_found(store, events)
            wait_until(lambda: end_of(path) == 96)
            assert_all_found(store, events)


def test_b3_what_has_expired_is_not_found_and_the_last_word_is(
    path: Path, small_blocks: None
) -> None:
    with opened(path) as store:
        events = put(store, *drafts(100, 2))
        call(expire(store, 50.0, 100.0)).result(60)
        left = read(store, list_after(0, 1000))
        assert len(left) < len(events)
        assert_all_found_by_agent(store, left)


def assert_all_found_by_agent(store: Store, events: list[Event]) -> None:
    for agent in {event.agent for event in events}:
        mine = [event for event in events if event.agent == agent]
        assert read(store, list_after(0, 1000, agent=agent)) == mine


def test_b3_a_page_of_one_agent_costs_the_same_in_a_log_ten_times_as_long(path: Path) -> None:
    """Counted in steps of SQLite's machine, which do not depend on how busy this one is."""

    def steps(store: Store, **conditions: object) -> int:
        counted = 0

        def step() -> None:
            nonlocal counted
            counted += 1

        def look(connection: sqlite3.Connection) -> int:
            connection.set_progress_handler(step, 10)
            try:
                return len(list_after(0, 50, **conditions)(connection))  # type: ignore[arg-type]
            finally:
                connection.set_progress_handler(None, 0)

        assert read(store, look) == 50
        return counted

    block = event_index.BLOCK
    with opened(path) as store:
        put(store, *(Draft(1.0, "approval.asked", "rare") for _ in range(25)))
        counts = []
        for size in (block, 10 * block):
            filled = store.last_id
            while filled < size:
                put(store, *(Draft(1.0, "hook.received", f"a{n % 20}") for n in range(block // 4)))
                filled = store.last_id
            put(store, *(Draft(1.0, "approval.asked", "rare") for _ in range(25)))
            wait_until(lambda: end_of(path) == (store.last_id + 1) // block * block)
            counts.append([steps(store, agent="rare"), steps(store, kinds=["approval.asked"])])
    for few, many in zip(*counts, strict=True):
        assert many <= 1.3 * few

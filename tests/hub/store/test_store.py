"""The event log: numbers, keys, groups, what is committed and what is told, and the bad days."""

import asyncio
import concurrent.futures
import contextlib
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.errors import BullpenError, Kind
from bullpen.hub.store import database
from bullpen.hub.store import events as event_rows
from bullpen.hub.store import expire as expire_module
from bullpen.hub.store import store as store_module
from bullpen.hub.store.events import find_by_key, find_last, list_after, list_last_states
from bullpen.hub.store.expire import expire
from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.event import KINDS, Draft, Event, to_json
from tests.hub.store.calls import (
    WAIT,
    StoppedWriter,
    call,
    put,
    read,
    sql,
    submit,
    wait_begun,
    write,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.open(path)
    yield opened
    opened.close()


def draft(kind: str = "hook.received", agent: str = "amy", key: str = "", **data: object) -> Draft:
    return Draft(time=1000.5, kind=kind, agent=agent, data=data, key=key)


def everything(store: Store) -> list[Event]:
    return read(store, list_after(0, 1_000_000))


# ── appending and reading ──


def test_b3_events_come_back_as_they_were_given(store: Store) -> None:
    odd = {"text": "ü 💥 \x00 \udc80 \u2028\n", "list": [1, 2.5, None, True], "deep": {"a": {}}}
    first, second = put(store, draft(**odd), draft("agent.state", state="idle"))
    assert (first.id, second.id) == (1, 2)
    assert first == Event(1, 1000.5, "hook.received", "amy", odd)
    assert everything(store) == [first, second]
    assert to_json(second) == {
        "id": 2,
        "time": 1000.5,
        "kind": "agent.state",
        "agent": "amy",
        "data": {"state": "idle"},
    }


def test_every_kind_can_be_stored(store: Store) -> None:
    made = put(store, *(draft(kind) for kind in sorted(KINDS)))
    assert everything(store) == made


def test_pages_by_id_kind_and_agent(store: Store) -> None:
    put(store, draft(agent=""), draft(agent="bob"))
    put(store, *(draft(agent="amy") for _ in range(3)), draft("agent.state", agent="bob"))
    put(store, draft("hub.started", agent=""))

    def ids(*words: int, **conditions: Any) -> list[int]:
        return [event.id for event in read(store, list_after(*words, **conditions))]

    assert ids(0, 3) == [1, 2, 3]
    assert ids(3, 3) == [4, 5, 6]
    assert ids(7, 3) == []
    assert ids(0, 9, agent="amy") == [3, 4, 5]
    assert ids(3, 1, agent="amy") == [4]
    assert ids(0, 9, agent="bob") == [2, 6]
    assert ids(0, 9, agent="") == [1, 7]
    assert ids(0, 9, kinds={"agent.state", "hub.started"}) == [6, 7]
    assert ids(0, 9, kinds=["hook.received"], agent="bob") == [2]
    assert ids(0, 9, kinds=["task.state"]) == []
    assert ids(0, 9, kinds=[]) == []
    assert ids(0, 9, agent="nobody") == []
    assert ids(-5, 2) == [1, 2]
    assert ids(10**30, 5) == []
    assert ids(0, 0) == ids(0, -1) == []
    assert ids(0, 10**30) == [1, 2, 3, 4, 5, 6, 7]


def test_a_page_of_big_events_is_shorter_but_never_empty(store: Store) -> None:
    put(store, *(draft(text="x" * 1000) for _ in range(10)))
    assert len(read(store, list_after(0, 10, most_bytes=3000))) == 3
    assert len(read(store, list_after(9, 10, most_bytes=1))) == 1


def test_the_last_of_each(store: Store) -> None:
    assert store.last_id == 0
    assert read(store, list_last_states) == {}
    assert read(store, find_last("amy", "agent.state")) is None
    put(store, draft("agent.state", n=1), draft("agent.state", "bob", n=2))
    *_, amy = put(store, draft("agent.state", n=3), draft(n=4), draft("agent.state", n=5))
    states = read(store, list_last_states)
    assert {name: event.data["n"] for name, event in states.items()} == {"amy": 5, "bob": 2}
    assert read(store, find_last("amy", "agent.state")) == states["amy"] == amy
    assert read(store, find_last("amy", "agent.stopped")) is None
    assert store.last_id == 5


def test_the_last_states_are_found_without_reading_the_log(path: Path, store: Store) -> None:
    """Counted in steps of SQLite's machine, which do not depend on how busy this one is."""
    put(store, *(draft("agent.state", f"a{number}") for number in range(20)))

    def steps() -> int:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        connection = database.connect(path, read_only=True)
        connection.set_progress_handler(step, 1)
        rows = connection.execute(event_rows.LAST_OF, ("agent.state",)).fetchall()
        connection.close()
        assert len(rows) == 20
        return count

    few = steps()
    for _ in range(10):
        put(store, *(draft("agent.state", f"a{number % 20}") for number in range(200)))
        put(store, *(draft(agent=f"b{number}") for number in range(50)))
    assert steps() <= few + 20


def test_a_draft_that_cannot_be_stored_is_refused_at_once(store: Store) -> None:
    for bad, error in (
        (draft("agent.dreams"), ValueError),
        (Draft(time=float("nan"), kind="task.state"), ValueError),
        (draft(number=float("inf")), ValueError),
        (draft(thing=object()), TypeError),
        (draft(agent="\udc80"), ValueError),
        (draft(key="\udc80"), ValueError),
    ):
        with pytest.raises(error):
            put(store, draft(), bad)
    assert everything(store) == []


def test_an_event_too_big_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rows, "MOST_DATA", 100)
    with pytest.raises(ValueError, match="too big"):
        put(store, draft(text="x" * 100))


# ── keys ──


def test_b3_a_key_happens_once(store: Store) -> None:
    [first] = put(store, draft(key="k", n=1))
    again, other = put(store, draft("task.state", key="k", n=2), draft(n=3))
    assert again == first
    assert other.id == 2
    assert read(store, find_by_key("k")) == first
    assert read(store, find_by_key("other")) is None
    assert len(everything(store)) == 2


def test_b3_a_key_happens_once_within_a_unit_and_a_group(store: Store) -> None:
    writer = StoppedWriter(store)
    futures = [submit(store, draft(key="k", n=n), draft(key="k", n=-n)) for n in range(5)]
    odd = submit(store, draft(key="a\x00b"))
    writer.go_on()
    events = {event.id for future in futures for event in future.result(WAIT)}
    assert events == {1}
    assert odd.result(WAIT)[0].id == 2
    assert put(store, draft(key="a\x00b"))[0].id == 2


def test_many_keys_in_one_unit(store: Store) -> None:
    drafts = [draft(key=f"k{number}") for number in range(1300)]
    assert put(store, *drafts) == put(store, *reversed(drafts))[::-1]
    assert store.last_id == 1300


# ── groups ──


def test_what_waits_is_committed_at_once(store: Store) -> None:
    told: list[list[int]] = []
    store.on_commit = lambda events: told.append([event.id for event in events])
    writer = StoppedWriter(store)
    futures = [submit(store, draft()) for _ in range(300)]
    writer.go_on()
    assert [future.result(WAIT)[0].id for future in futures] == list(range(1, 301))
    assert told == [list(range(1, 301))]


def test_nobody_waits_for_more_than_so_many_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_WRITES", 2)
    told: list[int] = []
    store.on_commit = lambda events: told.append(len(events))
    writer = StoppedWriter(store)
    futures = [submit(store, draft()) for _ in range(5)]
    writer.go_on()
    for future in futures:
        future.result(WAIT)
    assert told == [2, 2, 1]


def test_b3_only_what_is_committed_is_told_and_before_its_callers(path: Path, store: Store) -> None:
    told: list[int] = []
    seen: list[int] = []

    def look(events: list[Event]) -> None:
        with sqlite3.connect(path) as other:
            seen.extend(row[0] for row in other.execute("SELECT id FROM events ORDER BY id"))
        other.close()
        told.extend(event.id for event in events)

    store.on_commit = look
    writer = StoppedWriter(store)
    future = submit(store, draft(), draft(key="k"))
    before: list[int] = []
    future.add_done_callback(lambda _: before.extend(told))
    writer.go_on()
    future.result(WAIT)
    assert seen == told == before == [1, 2]
    put(store, draft(key="k"))
    assert told == [1, 2], "an event that was there already is not told again"


def test_a_listener_that_fails_stops_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_events: list[Event]) -> None:
        raise RuntimeError("no loop")

    store.on_commit = fail
    assert put(store, draft())[0].id == 1
    assert put(store, draft())[0].id == 2
    assert "could not be handed on" in caplog.text


def test_a_function_that_fails_takes_nobody_down(store: Store) -> None:
    write(store, sql("CREATE TABLE t (n INTEGER UNIQUE)")).result(WAIT)
    writer = StoppedWriter(store)

    def appended_only(transaction: Transaction) -> None:
        transaction.append(draft(key="half"))
        raise IndexError("nothing but events")

    def insert(transaction: Transaction, number: int) -> int:
        return transaction.connection.execute("INSERT INTO t VALUES (?)", (number,)).rowcount

    def half(transaction: Transaction) -> None:
        transaction.append(draft(key="half"))
        insert(transaction, 7)
        transaction.append(draft())
        raise KeyError("half way")

    first = submit(store, draft(n=1))
    good = write(store, lambda transaction: insert(transaction, 1))
    bad = write(store, half)
    twice = write(store, lambda transaction: insert(transaction, 1))
    wrong = write(store, sql("SELECT nonsense"))
    events = write(store, appended_only)
    second = submit(store, draft(key="half", n=2))
    writer.go_on()
    assert first.result(WAIT)[0].id == 1
    assert good.result(WAIT) == 1
    for future, error in (
        (bad, KeyError),
        (twice, sqlite3.IntegrityError),
        (wrong, sqlite3.OperationalError),
        (events, IndexError),
    ):
        with pytest.raises(error):
            future.result(WAIT)
    assert second.result(WAIT)[0].id == 2
    assert [event.data for event in everything(store)] == [{"n": 1}, {"n": 2}]
    rows = write(store, sql("SELECT n FROM t")).result(WAIT)
    assert rows == [(1,)]


def test_events_of_a_function_stand_and_fall_with_it(store: Store) -> None:
    told: list[int] = []
    store.on_commit = lambda events: told.extend(event.id for event in events)
    put(store, draft(key="there"))

    def change(transaction: Transaction) -> list[int]:
        events = transaction.append(draft(key="there"), draft(key="new"), draft())
        count = transaction.connection.execute("SELECT count(*) FROM events").fetchone()
        return [*(event.id for event in events), *count]

    assert write(store, change).result(WAIT) == [1, 2, 3, 3]
    assert told == [1, 2, 3]
    assert read(store, find_by_key("new")) is not None


def test_a_function_sees_what_was_submitted_before_it(store: Store) -> None:
    writer = StoppedWriter(store)
    submit(store, draft(), draft())
    seen = write(store, sql("SELECT count(*) FROM events"))
    submit(store, draft())
    writer.go_on()
    assert seen.result(WAIT) == [(2,)]


units = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["", "", "k1", "k2", "k3"]), max_size=3),
        st.sampled_from(["append", "write", "fail", "write with SQL", "fail with SQL"]),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(groups=st.lists(units, max_size=3))
def test_random_groups_do_what_one_unit_after_the_other_would(
    store: Store, groups: list[list[tuple[list[str], str]]]
) -> None:
    start = store.last_id
    expected: dict[int, str] = {}
    keys: dict[str, int] = {}
    told: list[int] = []
    store.on_commit = lambda events: told.extend(event.id for event in events)
    for group in groups:
        writer = StoppedWriter(store)
        futures: list[tuple[concurrent.futures.Future[list[Event]], list[int] | None]] = []
        for names, how in group:
            unit = [draft(key=f"{start}-{name}" if name else "") for name in names]
            if how == "append":
                future = submit(store, *unit)
            else:
                fails = how.startswith("fail")
                future = write(
                    store, partial(_insert, drafts=unit, fails=fails, has_sql="SQL" in how)
                )
            if how.startswith("fail"):
                futures.append((future, None))
                continue
            ids = []
            for name in names:
                number = keys.get(name) or start + len(expected) + 1
                expected.setdefault(number, name)
                if name:
                    keys[name] = number
                ids.append(number)
            futures.append((future, ids))
        writer.go_on()
        for future, wanted in futures:
            if wanted is None:
                assert isinstance(future.exception(WAIT), ZeroDivisionError)
            else:
                assert [event.id for event in future.result(WAIT)] == wanted
    assert [event.id for event in read(store, list_after(start, 1000))] == sorted(expected) == told


def _insert(
    transaction: Transaction, drafts: list[Draft], fails: bool, has_sql: bool
) -> list[Event]:
    events = transaction.append(*drafts[:1])
    if has_sql:
        transaction.connection.execute("SELECT count(*) FROM events")
    events += transaction.append(*drafts[1:])
    if fails:
        raise ZeroDivisionError
    return events


# ── callers ──


def test_callers_on_loops_and_in_threads_get_their_own(store: Store) -> None:
    async def caller(name: str) -> list[Event]:
        made = []
        for number in range(20):
            made += await store.append(draft(agent=name, n=number))
        return made

    async def loop(label: str) -> list[list[Event]]:
        return await asyncio.gather(*(caller(f"{label}-{number}") for number in range(16)))

    def thread(label: str) -> list[Event]:
        return [put(store, draft(agent=label, n=number))[0] for number in range(20)]

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        loops = [pool.submit(asyncio.run, loop(label)) for label in ("left", "right")]
        threads = [pool.submit(thread, f"thread-{number}") for number in range(8)]
        made = [events for future in loops for events in future.result(WAIT)]
        made += [future.result(WAIT) for future in threads]
    assert len({event.id for events in made for event in events}) == 40 * 20
    for events in made:
        assert [event.data["n"] for event in events] == list(range(20))
        assert len({event.agent for event in events}) == 1
        assert read(store, list_after(0, 100, agent=events[0].agent)) == events


def test_a_caller_that_gives_up_harms_nobody(store: Store) -> None:
    async def main() -> list[Event]:
        writer = StoppedWriter(store)
        gone = asyncio.create_task(store.append(draft(n=1)))
        kept = asyncio.create_task(store.append(draft(n=2)))
        await asyncio.sleep(0)
        gone.cancel()
        writer.go_on()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await asyncio.wait_for(kept, WAIT)

    assert asyncio.run(main())[0].id == 2
    assert len(everything(store)) == 2, "the wait was cancelled, not the event"


def test_a_loop_that_is_gone_stops_nothing(store: Store) -> None:
    writer = StoppedWriter(store)

    async def ask() -> None:
        task = asyncio.create_task(store.append(draft()))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(ask())
    writer.go_on()
    assert [put(store, draft())[0].id for _ in range(3)] == [2, 3, 4]


def test_close_finishes_what_was_submitted(path: Path) -> None:
    store = Store.open(path)
    writer = StoppedWriter(store)
    futures = [submit(store, draft()) for _ in range(50)]
    wait_begun()
    closing = threading.Thread(target=store.close)
    closing.start()
    writer.go_on()
    closing.join(WAIT)
    assert [future.result(WAIT)[0].id for future in futures] == list(range(1, 51))
    assert not path.with_name("state.db-wal").exists()
    store.close()
    for refused in (lambda: put(store, draft()), lambda: everything(store)):
        with pytest.raises(BullpenError, match="closed") as caught:
            refused()
        assert caught.value.kind is Kind.UNAVAILABLE
    again = Store.open(path)
    assert again.last_id == 50
    again.close()


# ── retention ──


def test_b3_old_events_go_but_not_the_last_word_on_an_agent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expire_module, "EXPIRE_ROWS", 7)

    def at(time: float, kind: str, agent: str = "amy") -> Draft:
        return Draft(time=time, kind=kind, agent=agent)

    old = [at(10, kind) for kind in ("agent.started", "agent.state", "hook.received") * 5]
    put(store, at(5, "agent.state", "bob"), *old, at(10, "agent.stopped"))
    put(store, *(at(10, "hook.received", "bob") for _ in range(20)))
    new = put(store, at(100, "hook.received"), at(100, "agent.state"))
    assert call(expire(store, 50, now=100)).result(WAIT) == 34
    kept = [(event.kind, event.agent) for event in everything(store)[:-2]]
    assert kept == [
        ("agent.state", "bob"),
        ("agent.started", "amy"),
        ("agent.stopped", "amy"),
    ]
    assert everything(store)[-2:] == new
    assert call(expire(store, 50, now=100)).result(WAIT) == 0
    assert {event.time for event in read(store, list_last_states).values()} == {5, 100}
    assert read(store, find_last("bob", "hook.received")) is None


def test_b3_what_is_exactly_as_old_as_is_kept_stays(store: Store) -> None:
    put(store, *(Draft(time=at, kind="hook.received") for at in (49.0, 50.0, 49.0, 51.0)))
    assert call(expire(store, 50, now=100)).result(WAIT) == 2
    assert [event.time for event in everything(store)] == [50.0, 51.0]


def test_b3_ids_are_never_given_twice(path: Path) -> None:
    store = Store.open(path)
    put(store, *(draft() for _ in range(10)))
    assert call(expire(store, 0, now=5000)).result(WAIT) == 10
    assert everything(store) == []
    assert store.last_id == 10
    store.close()
    store = Store.open(path)
    assert store.last_id == 10
    assert put(store, draft())[0].id == 11
    store.close()


# ── the file ──


def test_the_file_is_private_and_every_commit_is_flushed(path: Path, store: Store) -> None:
    old = os.umask(0)
    try:
        put(store, draft())
        other = path.with_name("other.db")
        Store.open(other).close()
    finally:
        os.umask(old)
    for name in ("state.db", "state.db-wal", "state.db-shm", "other.db"):
        assert stat.S_IMODE(path.with_name(name).stat().st_mode) == 0o600, name
    assert not list(path.parent.glob(".*.new*"))

    def ask(transaction: Transaction) -> list[object]:
        names = ("synchronous", "journal_mode", "busy_timeout")
        database = transaction.connection
        return [database.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert write(store, ask).result(WAIT) == [2, "wal", 5000]


def test_two_that_open_at_once_make_one_database(path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: Store.open(path), range(8)))
    ids = [put(store, draft())[0].id for store in stores]
    assert ids == list(range(1, 9))
    for store in stores:
        assert len(everything(store)) == 8
        store.close()


def test_one_that_finds_anothers_log_where_nothing_was_looks_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other makes the database and its log between our look for the one and for the other."""
    first_look = iter([False])
    exists = Path.exists

    def too_early(asked: Path) -> bool:
        return exists(asked) and (asked != path or next(first_look, True))

    with contextlib.closing(Store.open(path)) as other:
        put(other, draft())
        monkeypatch.setattr(Path, "exists", too_early)
        with contextlib.closing(Store.open(path)) as store:
            assert len(everything(store)) == 1
    assert not list(first_look)


def test_a_database_of_a_later_version_is_refused_and_left_alone(path: Path) -> None:
    _leave_a_log(path, version=99)
    before = _files(path)
    with pytest.raises(BullpenError, match=f"version 99; .* up to {len(database.STEPS)}") as caught:
        Store.open(path)
    assert caught.value.kind is Kind.UNSUPPORTED
    assert _files(path) == before
    assert "state.db-wal" in before


# Version 1 as it was first written. Never to be changed: such files are out there.
VERSION_1 = """
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
  kind TEXT NOT NULL, agent TEXT NOT NULL, data TEXT NOT NULL, key TEXT);
CREATE UNIQUE INDEX events_key ON events (key) WHERE key IS NOT NULL;
CREATE TABLE latest (kind TEXT NOT NULL, agent TEXT NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL, PRIMARY KEY (kind, agent)) WITHOUT ROWID;
INSERT INTO events VALUES (3, 1.5, 'agent.state', 'amy', '{"state":"idle"}', 'k');
INSERT INTO latest VALUES ('agent.state', 'amy', 1, 3);
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


def _make_version_1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.close()


def test_a_database_of_version_1_is_understood(path: Path) -> None:
    _make_version_1(path)
    store = Store.open(path)
    assert everything(store) == [Event(3, 1.5, "agent.state", "amy", {"state": "idle"})]
    assert read(store, list_last_states)["amy"].id == put(store, draft(key="k"))[0].id == 3
    assert put(store, draft())[0].id == 4
    store.close()


def test_an_older_database_is_brought_up_to_date_or_left_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_version_1(path)
    good = ("CREATE TABLE more (n INTEGER)", "INSERT INTO more VALUES (7)")
    bad = ("CREATE TABLE other (n INTEGER)", "INSERT INTO nowhere VALUES (7)")
    known = database.STEPS
    monkeypatch.setattr(database, "STEPS", (*known, good, bad))
    with pytest.raises(BullpenError, match="nowhere"):
        Store.open(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'"
        ).fetchone() == (0,)
    monkeypatch.setattr(database, "STEPS", (*known, good))
    for _ in range(2):
        store = Store.open(path)
        rows = write(store, sql("SELECT n FROM more")).result(WAIT)
        assert rows == [(7,)]
        assert store.last_id == 3
        store.close()


def _files(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in path.parent.glob("*state.db*")
        if not file.name.endswith("-shm")  # an index that is made anew
    }


def _refused(path: Path) -> BullpenError:
    before = _files(path)
    with pytest.raises(BullpenError) as caught:
        Store.open(path)
    assert _files(path) == before, "what was refused must stay as it was"
    assert caught.value.kind is Kind.UNAVAILABLE
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", os.urandom(8192), b"SQLite format 3\x00" + b"\x00" * 4096]
)
def test_a_damaged_file_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = _refused(path)
    assert "is damaged" in error.message
    assert "nothing was changed" in error.hint


def test_somebody_elses_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (n INTEGER)")
    other.close()
    assert "not one of Bullpen's" in _refused(path).message


def _leave_a_log(path: Path, version: int = len(database.STEPS)) -> None:
    """A database with events that are only in its write-ahead log, as after kill -9."""
    store = Store.open(path)
    write(store, sql(f"PRAGMA user_version = {version}")).result(WAIT)
    put(store, *(draft() for _ in range(100)))
    aside = path.with_name("aside")
    aside.mkdir()
    for name in ("state.db", "state.db-wal"):
        shutil.copy(path.with_name(name), aside / name)
    store.close()
    for name in ("state.db", "state.db-wal"):
        (aside / name).replace(path.with_name(name))
    aside.rmdir()


def test_events_that_are_only_in_the_log_are_found(path: Path) -> None:
    _leave_a_log(path)
    store = Store.open(path)
    assert store.last_id == len(everything(store)) == 100
    store.close()


@pytest.mark.parametrize("loss", ["missing", "empty", "torn"])
def test_a_log_whose_database_is_lost_is_kept(path: Path, loss: str) -> None:
    """SQLite deletes a log that it finds beside an empty file; the events are in there."""
    _leave_a_log(path)
    if loss == "missing":
        path.unlink()
    elif loss == "empty":
        os.truncate(path, 0)
    else:
        with path.open("r+b") as file:
            file.write(b"\xff" * 100)
        path.with_name("state.db-wal").write_bytes(os.urandom(50_000))
    assert "is damaged" in _refused(path).message


def test_damage_that_shows_later_is_told_and_the_rest_still_works(path: Path) -> None:
    store = Store.open(path)
    put(store, *(draft(text="x" * 2000) for _ in range(50)))
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    store = Store.open(path)
    with pytest.raises(BullpenError, match="is damaged"):
        everything(store)
    assert put(store, draft())[0].id == 51
    store.close()


def test_a_place_that_is_not_there_or_not_ours_is_named(path: Path) -> None:
    with pytest.raises(BullpenError, match=r"no/state\.db") as caught:
        Store.open(path.with_name("no") / "state.db")
    assert caught.value.kind is Kind.UNAVAILABLE
    path.mkdir()
    with pytest.raises(BullpenError, match=str(path)):
        Store.open(path)


# ── full disks and other failures ──


def _limit(store: Store, pages: int) -> None:
    write(store, sql(f"PRAGMA max_page_count = {pages}")).result(WAIT)


def test_a_full_database_is_told_and_works_again_when_there_is_room(store: Store) -> None:
    told: list[int] = []
    store.on_commit = lambda events: told.extend(event.id for event in events)
    put(store, draft())
    _limit(store, 1)
    writer = StoppedWriter(store)
    futures = [submit(store, draft(text="x" * 5000, key=f"k{n}")) for n in range(3)]
    ran = write(store, sql("CREATE TABLE big AS SELECT zeroblob(100000)"))
    writer.go_on()
    concurrent.futures.wait(futures, WAIT)
    alone = write(store, sql("CREATE TABLE big AS SELECT zeroblob(100000)"))
    for future in (*futures, ran, alone):
        with pytest.raises(BullpenError, match=f"{store.path}.*full") as caught:
            future.result(WAIT)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert "free some space" in caught.value.hint
    assert told == [1]
    _limit(store, 10_000)
    assert [put(store, draft(key=f"k{n}"))[0].id for n in range(3)] == [2, 3, 4]
    assert told == [1, 2, 3, 4]
    assert len(everything(store)) == 4


def test_a_locked_database_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    store = Store.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BullpenError, match="locked") as caught:
        put(store, draft())
    assert caught.value.kind is Kind.UNAVAILABLE
    other.execute("ROLLBACK")
    other.close()
    assert put(store, draft())[0].id == 1
    store.close()


IO_ERROR = """
import asyncio, resource, signal, sys
from pathlib import Path
from bullpen.errors import BullpenError, Kind
from bullpen.hub.store.events import list_after
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft

store = Store.open(Path(sys.argv[1]))
acknowledged = failed = 0

def put():
    global acknowledged, failed
    try:
        asyncio.run(store.append(Draft(1.0, "task.state", data={"text": "x" * 3000})))
        acknowledged += 1
    except BullpenError as error:
        assert error.kind is Kind.UNAVAILABLE and sys.argv[1] in error.message, error
        failed += 1

for _ in range(3):
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    while not failed:
        put()
    put()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wanted, failed = acknowledged + 5, 0
    while acknowledged < wanted:
        put()
    assert not failed
print(acknowledged, len(asyncio.run(store.read(list_after(0, 10**6)))), store.last_id)
"""


def test_a_write_error_is_told_and_works_again_afterwards(path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", IO_ERROR, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    acknowledged, found, last = map(int, done.stdout.split())
    assert acknowledged == found == last > 15
    store = Store.open(path)
    assert len(everything(store)) == acknowledged
    store.close()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_loses_nothing_and_recovers(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = Store.open(disk / "state.db")
        acknowledged = []
        with pytest.raises(BullpenError, match="full"):
            while True:
                acknowledged += put(store, draft(text="x" * 3000))
        with pytest.raises(BullpenError, match="full"):
            put(store, draft(text="x" * 300_000))
        assert everything(store) == acknowledged
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        acknowledged += put(store, draft(text="x" * 300_000))
        store.close()
        store = Store.open(disk / "state.db")
        assert everything(store) == acknowledged
        store.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# ── kill -9 ──

APPENDER = """
import asyncio, os, sys
from pathlib import Path
from bullpen.hub.store.events import find_by_key
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft

store = Store.open(Path(sys.argv[1]))

async def append(caller):
    number = int(sys.argv[2])
    while True:
        # As a caller does that got no answer: the same again, and then on.
        key = f"{caller}-{number}"
        drafts = [Draft(1.0, "agent.state", f"a{caller}", {"key": key}, key)]
        drafts.append(Draft(1.0, "task.state", data={"with": key}))
        if await store.read(find_by_key(key)):
            drafts.pop()
        event = (await store.append(*drafts))[0]
        os.write(1, f"{event.id} {key}\\n".encode())
        number += 1

async def main():
    await asyncio.gather(*map(append, range(8)))

asyncio.run(main())
"""


def _kill_again_and_again(path: Path, times: int) -> None:
    chance = random.Random(times)
    acknowledged: dict[str, int] = {}
    for _ in range(times):
        begin = max(len(acknowledged) // 8 - 20, 0)
        words = [sys.executable, "-c", APPENDER, str(path), str(begin)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            text = b""
            wanted = chance.randrange(0, 400)
            while text.count(b"\n") < wanted and (data := os.read(child.stdout.fileno(), 4096)):
                text += data
            child.send_signal(signal.SIGKILL)
            text += child.stdout.read()
        for line in text.decode().splitlines():
            number, key = line.split()
            assert acknowledged.setdefault(key, int(number)) == int(number), "one key, two events"
        _check(path, acknowledged)
    assert len(acknowledged) > 100


def _check(path: Path, acknowledged: dict[str, int]) -> None:
    store = Store.open(path)
    events = everything(store)
    keyed = {event.id: event.data["key"] for event in events if "key" in event.data}
    assert len(set(keyed.values())) == len(keyed), "a key is there twice"
    for key, number in acknowledged.items():
        assert keyed.get(number) == key, "what was acknowledged is lost"
    together = [event.data["with"] for event in events if "with" in event.data]
    assert sorted(together) == sorted(keyed.values()), "half of a unit"
    states = read(store, list_last_states)
    for agent, event in states.items():
        assert event.id == max(other.id for other in events if other.agent == agent)
    store.close()


def test_b3_kill_9_loses_nothing_that_was_acknowledged(path: Path) -> None:
    _kill_again_and_again(path, 3)


@pytest.mark.storm
def test_b3_kill_9_many_times_loses_nothing_that_was_acknowledged(path: Path) -> None:
    _kill_again_and_again(path, 40)


@pytest.mark.storm
def test_b3_kill_9_while_the_database_is_made(path: Path) -> None:
    """At every file that is opened, linked or removed on the way; afterwards it opens."""
    code = """
import os, signal, sys
from pathlib import Path
from bullpen.hub.store.store import Store
seen, step = 0, int(sys.argv[2])
def hook(event, _args):
    global seen
    if event in ("open", "os.link", "os.remove", "os.rename", "sqlite3.connect",
                 "sqlite3.connect/handle"):
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
Store.open(Path(sys.argv[1])).close()
"""
    for step in range(1, 200):
        place = path.with_name(f"{step}.db")
        done = subprocess.run([sys.executable, "-c", code, place, str(step)], check=False)
        store = Store.open(place)
        assert put(store, draft())[0].id == 1
        store.close()
        if done.returncode == 0:
            assert step > 5
            return
        assert done.returncode == -signal.SIGKILL
    pytest.fail("it never got through")


# ── reading meanwhile ──


def test_waiting_has_an_end_when_all_readers_are_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait(_connection: sqlite3.Connection) -> bool:
        begun.release()
        return go_on.wait(WAIT)

    busy = [call(store.read(wait)) for _ in range(store_module.READERS)]
    for _ in busy:
        assert begun.acquire(timeout=WAIT)
    wait_begun()
    monkeypatch.setattr(store_module, "READ_SECONDS", 0.01)
    with pytest.raises(BullpenError, match="readers were busy"):
        everything(store)
    monkeypatch.undo()
    go_on.set()
    assert [future.result(WAIT) for future in busy] == [True] * store_module.READERS
    assert everything(store) == []


def test_a_read_does_not_wait_for_a_write_and_sees_what_was_acknowledged(store: Store) -> None:
    put(store, draft(n=1))
    writer = StoppedWriter(store)
    later = submit(store, draft(n=2))
    assert [event.data["n"] for event in everything(store)] == [1]
    assert not later.done()
    writer.go_on()
    later.result(WAIT)
    assert [event.data["n"] for event in everything(store)] == [1, 2]


def test_a_read_sees_one_state_of_the_database(store: Store) -> None:
    def look_twice(connection: sqlite3.Connection) -> list[int]:
        before = len(list_after(0, 10)(connection))
        put(store, draft())
        return [before, len(list_after(0, 10)(connection))]

    assert asyncio.run(store.read(look_twice)) == [0, 0]
    assert len(everything(store)) == 1


def test_a_read_that_fails_harms_no_other(store: Store) -> None:
    def stop(_connection: sqlite3.Connection) -> None:
        raise KeyError("half way")

    for _ in range(2 * store_module.READERS):
        with pytest.raises(KeyError):
            read(store, stop)
        with pytest.raises(BullpenError, match=r"cannot read .*readonly"):
            read(store, lambda connection: connection.execute("DELETE FROM events"))
    assert put(store, draft()) == everything(store)

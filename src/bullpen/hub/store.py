"""The hub's memory: the event log in SQLite, and the one thread that writes to the database.

The hub's parts append events and read them back; other tables are changed through `write`.
One thread takes everything that waits and commits it at once, so that a hundred callers
share one flush to disk. A caller is answered, and an event handed on, only when it is
committed. What is in the log's rows is `event_rows`'s; nothing here knows what an event means.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from bullpen.errors import BullpenError, Kind
from bullpen.hub.database import connect, failure, open_database, primary_code
from bullpen.hub.event_rows import (
    COLUMNS,
    LAST_OF,
    Group,
    Row,
    event_of,
    expire_next,
    find_last_id,
    list_after,
    row_of,
)
from bullpen.model.event import Draft, Event

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

READERS = 3
READ_SECONDS = 30.0
MOST_UNITS = 1024  # of one group: nobody waits for more than that many others

# Failures of the file, not of what somebody wanted to do with it: the whole group has failed.
_OF_THE_FILE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


class Store:
    """Made by `open`. Every method may be called from any thread, the coroutines on any loop."""

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        self.path = path
        self.on_commit: Callable[[list[Event]], None] | None = None
        """Gets what was committed, in the order of ids, before its callers are answered. Called
        in the writer's thread, which waits for it."""
        self._connection = writer
        self._group: Group | None = None
        self._queue: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued behind the end
        self._is_closed = False
        self._readers: queue.LifoQueue[sqlite3.Connection | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._readers.put(connect(path, read_only=True))
        self._thread = threading.Thread(target=self._write_groups, name="store", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path) -> Self:
        """The store at `path`, made if it is not there; refuses what it cannot use."""
        return cls(path, open_database(path))

    def close(self) -> None:
        """Finish what was submitted, then let go of the file. Waits; not for an event loop."""
        with self._gate:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        for _ in range(READERS):
            with contextlib.suppress(queue.Empty):  # a reader that is stuck keeps its own
                reader = self._readers.get(timeout=READ_SECONDS)
                assert reader is not None
                reader.close()
        self._readers.put(None)
        self._connection.close()

    # ── writing ──

    def submit(self, drafts: Sequence[Draft]) -> concurrent.futures.Future[list[Event]]:
        """Append all of them or none. A draft whose key is there already gives the event that
        has it, and writes nothing."""
        future: concurrent.futures.Future[list[Event]] = concurrent.futures.Future()
        self._put(_Unit(future, rows=[row_of(draft) for draft in drafts]))
        return future

    async def append(self, *drafts: Draft) -> list[Event]:
        """The same, awaited. Cancelling the wait does not take the events back."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Event]] = loop.create_future()
        self._put(_Unit(future, loop=loop, rows=[row_of(draft) for draft in drafts]))
        return await future

    def write(self, function: Callable[[sqlite3.Connection], T]) -> concurrent.futures.Future[T]:
        """Run `function` in the writer's thread, inside the transaction of its group: all that
        it changes is kept, or nothing if it raises. It must not begin or end transactions, and
        its result counts only when the future has it. `insert` adds events to what it does."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._put(_Unit(future, function=function))
        return future

    def insert(self, *drafts: Draft) -> list[Event]:
        """For a function given to `write`, while it runs: events that stand and fall with it."""
        if self._group is None or threading.current_thread() is not self._thread:
            raise RuntimeError("`insert` is for functions given to `write`; use `append`")
        rows = [row_of(draft) for draft in drafts]
        self._group.look_up(key for _, _, key in rows if key)
        events = self._group.add(rows)
        self._group.flush()
        return events

    async def expire(self, older_than_seconds: float, now: float) -> int:
        """Delete events of before; how many. Not the last ones that say how an agent is. Ends at
        the first stretch of the log with nothing old in it: after a clock that ran ahead was
        set back, events stay longer, never shorter."""
        before, seen, deleted = now - older_than_seconds, 0, 0
        while True:
            found, end = await asyncio.wrap_future(
                self.write(partial(expire_next, seen=seen, before=before))
            )
            if end is None:
                return deleted
            deleted, seen = deleted + found, end

    def _put(self, unit: "_Unit") -> None:
        with self._gate:
            if self._is_closed:
                raise _closed(self.path)
            self._queue.put(unit)

    # ── the writer's thread ──

    def _write_groups(self) -> None:
        is_open = True
        while is_open:
            units, is_open = self._take()
            if units:
                self._commit(units)

    def _take(self) -> tuple[list["_Unit"], bool]:
        """All that waits, at least one; and whether more may come."""
        units: list[_Unit] = []
        unit = self._queue.get()
        while unit is not None:
            if unit.is_wanted():
                units.append(unit)
            if len(units) == MOST_UNITS or self._queue.empty():  # nobody else takes from it
                return units, True
            unit = self._queue.get()
        return units, False

    def _commit(self, units: list["_Unit"]) -> None:
        events: list[Event] = []
        try:
            events = self._transact(units)
        except Exception as error:  # noqa: BLE001 - top of the thread; the callers get it
            for unit in units:
                unit.error = (
                    failure("write", self.path, error)
                    if isinstance(error, sqlite3.Error)
                    else error
                )
        if events and self.on_commit is not None:
            try:
                self.on_commit(events)
            except Exception:
                # Committed is committed: who missed this finds it in the log.
                log.exception("committed events could not be handed on")
        _deliver(units)

    def _transact(self, units: list["_Unit"]) -> list[Event]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            group = self._group = Group(connection)
            group.look_up(key for unit in units for _, _, key in unit.rows if key)
            for unit in units:
                if unit.function is None:
                    unit.result = group.add(unit.rows)
                else:
                    _run(group, unit)
            group.flush()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite has rolled some failures back by itself
                connection.execute("ROLLBACK")
            raise
        finally:
            self._group = None
        return group.events

    # ── reading ──

    def after(
        self,
        seen: int,
        limit: int,
        kinds: Collection[str] | None = None,
        agent: str | None = None,
        most_bytes: int = 0,
    ) -> list[Event]:
        """The next events after the id `seen`, at most `limit`; an empty list is the end. With
        `most_bytes` a page of big events is shorter, but never empty for that."""
        if limit < 1 or (kinds is not None and not kinds):
            return []
        with self._reading() as connection:
            return list_after(connection, seen, limit, kinds, agent, most_bytes)

    def last_id(self) -> int:
        """The highest id that was ever given; 0 before the first. Its event may have expired."""
        with self._reading() as connection:
            return find_last_id(connection)

    def last_of(self, agent: str, kind: str) -> Event | None:
        """The latest event of that kind about that agent, if it is still kept."""
        return self._find(f"{LAST_OF} AND latest.agent = ?", kind, agent)

    def last_states(self) -> dict[str, Event]:
        """The latest `agent.state` of each agent."""
        with self._reading() as connection:
            rows = connection.execute(LAST_OF, ("agent.state",)).fetchall()
        return {event.agent: event for event in map(event_of, rows)}

    def find_key(self, key: str) -> Event | None:
        """The event that was made with that key."""
        return self._find(f"SELECT {COLUMNS} FROM events WHERE key = ?", key)

    def read(self, select: str, values: Sequence[str | int] = ()) -> list[Any]:
        """Rows of another table than the log's; whose it is knows what they mean."""
        with self._reading() as connection:
            return connection.execute(select, values).fetchall()

    def _find(self, select: str, *values: str) -> Event | None:
        with self._reading() as connection:
            row = connection.execute(select, values).fetchone()
        return None if row is None else event_of(row)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One of the readers: a long page holds up the next caller but two."""
        try:
            connection = self._readers.get(timeout=READ_SECONDS)
        except queue.Empty:
            raise BullpenError(
                f"cannot read {self.path}: its readers were busy for {READ_SECONDS:g} s",
                hint="ask for smaller pages",
                kind=Kind.UNAVAILABLE,
            ) from None
        try:
            if connection is None:
                raise _closed(self.path)
            yield connection
        except sqlite3.Error as error:
            raise failure("read", self.path, error) from error
        finally:
            self._readers.put(connection)


class _Unit:
    """What one caller wants done, and where its outcome goes."""

    __slots__ = ("error", "function", "future", "loop", "result", "rows")

    def __init__(
        self,
        future: concurrent.futures.Future[Any] | asyncio.Future[Any],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        rows: Sequence[Row] = (),
        function: Callable[[sqlite3.Connection], Any] | None = None,
    ) -> None:
        self.future = future
        self.loop = loop
        self.rows = rows
        self.function = function
        self.result: Any = None
        self.error: BaseException | None = None

    def is_wanted(self) -> bool:
        """Not cancelled before it began; from now on it cannot be."""
        if isinstance(self.future, concurrent.futures.Future):
            return self.future.set_running_or_notify_cancel()
        return True

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def _run(group: Group, unit: _Unit) -> None:
    """A function, in a savepoint: if it fails, the others of its group do not."""
    assert unit.function is not None
    connection, last_id = group.connection, group.last_id
    group.flush()
    connection.execute("SAVEPOINT unit")
    try:
        unit.result = unit.function(connection)
    except BaseException as error:
        if not connection.in_transaction or primary_code(error) in _OF_THE_FILE:
            raise
        connection.execute("ROLLBACK TO unit")
        group.forget_after(last_id)
        unit.error = error
    connection.execute("RELEASE unit")


def _deliver(units: list[_Unit]) -> None:
    """Answer the callers; those on a loop with one wake-up for all of them, which costs more
    than the rest of it."""
    loops: dict[asyncio.AbstractEventLoop, list[_Unit]] = {}
    for unit in units:
        if unit.loop is None:
            unit.settle()
        else:
            loops.setdefault(unit.loop, []).append(unit)
    for loop, waiting in loops.items():
        with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(units: list[_Unit]) -> None:
    for unit in units:
        unit.settle()


def _closed(path: Path) -> BullpenError:
    return BullpenError(
        f"{path} has been closed", hint="the hub is stopping", kind=Kind.UNAVAILABLE
    )

"""The hub's database: `read` and `write`, each given a function that gets a connection.

Called by all parts of the hub. One thread writes: it takes all functions that wait and commits
what they did at once, so that a hundred callers share one flush to disk. A caller of `write` is
answered, and an event handed on, only when it is committed. Other threads read, and never wait
for a write: the next `read` sees all that was answered before. Knows nothing of what the rows
mean; `events` has the log's queries, other rooms have their own.
"""

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from bullpen.errors import BullpenError, Kind
from bullpen.hub.store.database import connect, failure, open_database, primary_code
from bullpen.hub.store.event_index import BLOCK, find_end, write_block
from bullpen.hub.store.events import find_last_id, row_of
from bullpen.hub.store.transaction import CommitGroup, Transaction
from bullpen.model.event import Draft, Event

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

READERS = 3
READ_SECONDS = 30.0
MOST_WRITES = 1024  # of one group: nobody waits for more than that many others

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
    """Made by `open`. The coroutines may run on any event loop."""

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        self.path = path
        self.last_id = find_last_id(writer)
        """The highest id of an event that was ever committed; 0 before the first."""
        self._index_end = find_end(writer)
        self._index_again = 0  # after a failure: the last id at which it is tried again
        self.on_commit: Callable[[list[Event]], None] | None = None
        """Gets what was committed, in the order of ids, before its callers are answered. Called
        in the writer's thread, which waits for it."""
        self._writer = writer
        self._waiting: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued behind the end
        self._is_closed = False
        # As many connections as threads: whoever runs in one finds one.
        self._readers = deque(connect(path, read_only=True) for _ in range(READERS))
        self._reader_threads = ThreadPoolExecutor(READERS, "store reader")
        self._writer_thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._writer_thread.start()

    @classmethod
    def open(cls, path: Path) -> Self:
        """The store at `path`, made if it is not there; refuses what it cannot use."""
        return cls(path, open_database(path))

    def close(self) -> None:
        """Finish what was handed over, then close the file. Waits; not for an event loop."""
        with self._gate:
            if self._is_closed:
                return
            self._is_closed = True
            self._waiting.put(None)
        self._writer_thread.join()
        self._reader_threads.shutdown()
        for reader in self._readers:
            reader.close()
        self._writer.close()

    # ── reading ──

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """What `function` returns. It runs in a reader's thread, and sees one state of the
        database: all that was committed when it began. It cannot change anything."""
        with self._gate:
            self._refuse_closed()
            future = self._reader_threads.submit(self._read, function)
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise BullpenError(
                f"cannot read {self.path}: its readers were busy for {READ_SECONDS:g} s",
                hint="ask for smaller pages",
                kind=Kind.UNAVAILABLE,
            ) from None

    def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._readers.pop()
        try:
            connection.execute("BEGIN")
            try:
                return function(connection)
            finally:
                if connection.in_transaction:  # SQLite has ended it by itself at some failures
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise failure("read", self.path, error) from error
        finally:
            self._readers.append(connection)

    # ── writing ──

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """What `function` returns, when all that it did is on disk. It runs in the writer's
        thread; if it raises, nothing of it is kept. Cancelling the wait takes nothing back."""
        loop = asyncio.get_running_loop()
        write = _Write(function, loop, loop.create_future())
        with self._gate:
            self._refuse_closed()
            self._waiting.put(write)
        result: T = await write.future
        return result

    async def append(self, *drafts: Draft) -> list[Event]:
        """Write all of these events or none. A draft whose key is there already gives the event
        that has it, and adds nothing."""
        rows = [row_of(draft) for draft in drafts]
        return await self.write(lambda transaction: transaction.add_rows(rows))

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise BullpenError(
                f"{self.path} has been closed", hint="the hub is stopping", kind=Kind.UNAVAILABLE
            )

    # ── the writer's thread ──

    def _run(self) -> None:
        is_open = True
        while self._waiting.empty() and self._index_block():
            pass  # what earlier versions left to be indexed, until somebody comes
        while is_open:
            writes, is_open = self._take()
            if writes:
                self._commit(writes)
                self._index_block()

    def _index_block(self) -> bool:
        """Index the next block of events, if it is full; whether there may be another. One at a
        time: that is the longest that a caller waits for it."""
        if self.last_id + 1 < max(self._index_end + BLOCK, self._index_again):
            return False
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                write_block(connection, self._index_end)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:  # it stays behind: readers look there row by row
            self._index_again = self.last_id + BLOCK
            log.warning("cannot index events", extra={"why": str(error)})
            return False
        self._index_end += BLOCK
        return True

    def _take(self) -> tuple[list["_Write"], bool]:
        """All writes that wait, at least one; and whether more may come."""
        writes: list[_Write] = []
        write = self._waiting.get()
        while write is not None:
            writes.append(write)
            if len(writes) == MOST_WRITES or self._waiting.empty():  # nobody else takes from it
                return writes, True
            write = self._waiting.get()
        return writes, False

    def _commit(self, writes: list["_Write"]) -> None:
        events: list[Event] = []
        try:
            events = self._transact(writes)
        except Exception as error:  # noqa: BLE001 - top of the thread; the callers get it
            for write in writes:
                write.error = (
                    failure("write", self.path, error)
                    if isinstance(error, sqlite3.Error)
                    else error
                )
        if events:
            self._hand_on(events)
        _answer(writes)

    def _transact(self, writes: list["_Write"]) -> list[Event]:
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            group = CommitGroup(connection)
            for write in writes:
                write.run(group)
            group.write_rows()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite has rolled some failures back by itself
                connection.execute("ROLLBACK")
            raise
        return group.events

    def _hand_on(self, events: list[Event]) -> None:
        self.last_id = events[-1].id
        if self.on_commit is None:
            return
        try:
            self.on_commit(events)
        except Exception:
            # Committed is committed: who missed this finds it in the log.
            log.exception("committed events could not be handed on")


class _Write:
    """One function, and where its outcome goes."""

    __slots__ = ("error", "function", "future", "loop", "result")

    def __init__(
        self,
        function: Callable[[Transaction], Any],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        self.function = function
        self.loop = loop
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, group: CommitGroup) -> None:
        """If the function fails, the others of its group do not."""
        transaction = Transaction(group)
        try:
            self.result = self.function(transaction)
        except BaseException as error:
            if not group.connection.in_transaction or primary_code(error) in _OF_THE_FILE:
                raise
            self.error = error
            transaction.take_back()
        else:
            transaction.keep()

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def _answer(writes: list[_Write]) -> None:
    """One wake-up for all callers of a loop: it costs more than the rest of it."""
    loops: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
    for write in writes:
        loops.setdefault(write.loop, []).append(write)
    for loop, answered in loops.items():
        with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
            loop.call_soon_threadsafe(_answer_on_loop, answered)


def _answer_on_loop(writes: list[_Write]) -> None:
    for write in writes:
        write.answer()

"""Calls of a store's coroutines from a test that is none itself."""

import asyncio
import concurrent.futures
import functools
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.model.event import Draft, Event

T = TypeVar("T")

WAIT = 60.0


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for the process, in a thread that ends with it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="calls", daemon=True).start()
    return loop


def call(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Begin it. Calls begin in the order in which they are made."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop())


def wait_begun() -> None:
    """Until all that was called before has begun."""
    call(asyncio.sleep(0)).result(WAIT)


def submit(store: Store, *drafts: Draft) -> concurrent.futures.Future[list[Event]]:
    return call(store.append(*drafts))


def put(store: Store, *drafts: Draft) -> list[Event]:
    return submit(store, *drafts).result(WAIT)


def read(store: Store, query: Callable[[sqlite3.Connection], T]) -> T:
    return call(store.read(query)).result(WAIT)


def sql(statement: str) -> Callable[[Transaction], list[Any]]:
    """For `Store.write`: run the statement; its rows."""
    return lambda transaction: transaction.connection.execute(statement).fetchall()


def write(store: Store, function: Callable[[Transaction], T]) -> concurrent.futures.Future[T]:
    return call(store.write(function))


class StoppedWriter:
    """The writer waits, so that what is submitted now becomes one group, until `go_on`."""

    def __init__(self, store: Store) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        write(store, self._wait)
        assert self._begun.wait(WAIT)

    def _wait(self, _transaction: Transaction) -> None:
        self._begun.set()
        assert self._go_on.wait(WAIT)

    def go_on(self) -> None:
        wait_begun()
        self._go_on.set()

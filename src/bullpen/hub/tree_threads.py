"""Threads for work on agents' trees: few, one per agent at a time, and nobody waits for them.

An agent can make git wait, with a pipe that nobody writes to, until its time is up. So whatever
runs git where an agent may have written runs here, not in the threads that the rest of the hub
shares: there are `MOST_AT_ONCE` of them, an agent occupies one, and callers that ask the same of
one agent share one look. A hub that leaves ends the programs that still run here. Part of
`HubContext`. Knows nothing of git.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.hub.background import in_daemon_thread

T = TypeVar("T")

MOST_AT_ONCE = 16
LOOK_SECONDS = 20.0  # for one look


class TreeThreads:
    """All work of one hub on agents' trees."""

    def __init__(self, most: int = MOST_AT_ONCE, seconds: float = LOOK_SECONDS) -> None:
        self._room = asyncio.Semaphore(most)
        self._seconds = seconds
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looks: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_leaving = threading.Event()

    async def look(self, agent: str, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, or of the same look that is under way. Who would have to wait for
        longer than two looks take is told so."""
        key = (agent, what)
        task = self._looks.get(key)
        if task is None:
            task = self._looks[key] = self._begin(agent, work)
            task.add_done_callback(lambda _: self._looks.pop(key))
        done, _ = await asyncio.wait({task}, timeout=2 * self._seconds)
        if not done:
            raise _busy(agent)
        result: T = task.result()
        return result

    async def run(self, agent: str, work: Callable[[], T]) -> T:
        """Do it when it is this agent's turn. Who stops waiting does not stop it."""
        return await asyncio.shield(self._begin(agent, work))

    async def run_repeatable(self, agent: str, work: Callable[[], T]) -> T:
        """The same for work that the next hub does again, if this one left before its end."""
        with self.repeatable():
            return await self.run(agent, work)

    @contextlib.contextmanager
    def repeatable(self) -> Iterator[None]:
        """What a block came to while the hub left, a result or an error, is not to be recorded:
        its programs may have been ended."""
        try:
            yield
        finally:
            if self._is_leaving.is_set():
                raise asyncio.CancelledError

    async def run_to_end(self, work: Callable[[], T]) -> T:
        """The same for a step of a start or an end, which come one after the other anyway: a hub
        that leaves does not end its programs, and no look of this agent is waited for."""
        return await asyncio.shield(self._keep(self._work_to_end(work), "tree of a start or end"))

    def leave(self) -> None:
        """The hub stops: programs that still run here end soon."""
        self._is_leaving.set()

    def _begin(self, agent: str, work: Callable[[], T]) -> "asyncio.Task[T]":
        return self._keep(self._work(agent, work), f"tree of {agent}")

    def _keep(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _work(self, agent: str, work: Callable[[], T]) -> T:
        lock = self._locks.setdefault(agent, asyncio.Lock())
        async with lock, self._room:
            context = contextvars.copy_context()
            context.run(proc.is_wanted_here.set, lambda: not self._is_leaving.is_set())
            return await in_daemon_thread(lambda: context.run(work))

    async def _work_to_end(self, work: Callable[[], T]) -> T:
        async with self._room:
            return await in_daemon_thread(work)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # for whoever waited; nobody may have


def _busy(agent: str) -> BullpenError:
    return BullpenError(
        f"{agent} is being looked at, and that takes long",
        hint="try again; a pipe among its files makes git wait",
        kind=Kind.UNAVAILABLE,
    )

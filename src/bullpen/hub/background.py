"""Work in the background: tasks that nobody awaits, and threads that nobody waits for.

Keeps the tasks, because the loop itself forgets them, logs what fails in one, and says what a hub
that leaves has to wait for. Knows nothing of agents.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

log = logging.getLogger("bullpen.hub")

LEAVE_SECONDS = 10.0

T = TypeVar("T")


class Background:
    """All tasks of one hub that nobody awaits."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.unfinished: set[asyncio.Task[Any]] = set()  # what a hub that leaves waits for

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Let it go on by itself. What fails in it is logged under that name."""
        task = asyncio.get_running_loop().create_task(logged(work, name), name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # Cancelled before it began, it would be reported as never awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """A hub that leaves waits for that task."""
        self.unfinished.add(task)
        task.add_done_callback(self.unfinished.discard)

    @contextlib.contextmanager
    def unfinished_here(self) -> Iterator[None]:
        """A hub that leaves waits for the caller, until the block ends."""
        task = asyncio.current_task()
        assert task is not None
        self.unfinished.add(task)
        try:
            yield
        finally:
            self.unfinished.discard(task)

    async def leave(self) -> bool:
        """The hub stops: what is being taken back or recorded comes to its end before; False
        if that would take too long."""
        if not self.unfinished:
            return True
        return not (await asyncio.wait(self.unfinished, timeout=LEAVE_SECONDS))[1]


async def logged(work: Awaitable[None], name: str) -> None:
    """Wait for it; whatever fails there is logged, and goes no further."""
    try:
        await work
    except Exception:
        log.exception("a background task failed", extra={"what": name})


async def wholly(work: Awaitable[T]) -> T:
    """Threads and other processes go on when a wait for them is cancelled: what is taken back
    then has to be there as a whole before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Its result, or what it raised. A hub that leaves does not wait for the thread.

    For work that may take long and may be cut off anywhere, as by a crash: the next hub goes on
    with it. What has to come to its end belongs in `asyncio.to_thread`.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    # Whoever leaves cancels its wait, and not this: else the thread would end with an error.
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            future.set_exception(error)

    threading.Thread(target=work, name="daemon", daemon=True).start()
    return await asyncio.wrap_future(future)

"""Work that goes on beside requests, and what a hub that leaves waits for.

Tasks are kept here, for the loop itself forgets them, and whatever fails in one is logged. Knows
nothing of agents: `start`, `watch`, `record`, `pods` and `sweep` bring the work.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

log = logging.getLogger("bullpen.hub")

LEAVE_SECONDS = 10.0


class Beside:
    """All tasks of one hub that nobody awaits."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.unfinished: set[asyncio.Task[Any]] = set()  # what a hub that leaves waits for

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it go on by itself."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
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


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Top of a task beside: whatever fails there is said, and goes no further."""
    try:
        await work
    except Exception:
        log.exception("a task failed")

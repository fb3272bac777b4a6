"""What a queue of the server has delivered: it is told that somebody is at it, and what became of
it. If it does not hear that, it delivers again: nothing may depend on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from bullpen.fleet.link import LOST, cancel_all, closed_is_lost

if TYPE_CHECKING:
    from nats.aio.msg import Msg


@contextlib.asynccontextmanager
async def kept(message: "Msg", seconds: float) -> AsyncIterator[None]:
    """Meanwhile the queue, which waits for so long, delivers it to nobody else."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(seconds / 3)
            await tell(message.in_progress())

    keeping = asyncio.create_task(keep(), name="in progress")
    try:
        yield
    finally:
        await cancel_all(keeping)


async def tell(telling: Coroutine[Any, Any, object]) -> None:
    """The queue, if it is there."""
    with contextlib.suppress(*LOST), closed_is_lost():
        await telling

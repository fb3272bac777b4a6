"""Threads that a hub which leaves does not wait for.

For work that may take long and may be cut off anywhere, as by a crash: the next hub goes on with
it. What has to come to its end belongs in `asyncio.to_thread`.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_loose_thread(function: Callable[[], T]) -> T:
    """Its result, or what it raised."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    # Whoever leaves cancels its wait, and not this: else the thread would end with an error.
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            future.set_exception(error)

    threading.Thread(target=work, name="loose", daemon=True).start()
    return await asyncio.wrap_future(future)

"""A connection ends when it is told to, once, whatever the library does with that."""

import asyncio
from typing import Any

import pytest

from bullpen.fleet import kept_connection, link
from bullpen.fleet.credential import issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.task_server import TaskServer
from tests.fleet.links import answer_nothing, describe

NOWHERE = "nats://127.0.0.1:1"


@pytest.mark.parametrize("what", ["link", "tasks"])
def test_l5_it_ends_though_its_end_was_swallowed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = issue(make_seed(), "h1", make_seed())

    async def act() -> None:
        begun, again = asyncio.Event(), asyncio.Event()

        async def swallow(*_: Any, **__: Any) -> None:
            """The first, as `wait_for` of Python 3.11 does if what it waits for fails then."""
            (again if begun.is_set() else begun).set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if again.is_set():
                    raise
                raise ConnectionError("the server is away") from None

        monkeypatch.setattr(link, "connect", swallow)
        monkeypatch.setattr(kept_connection, "connect", swallow)
        if what == "link":
            work = link.Link(NOWHERE, credential, lambda: describe("h1"), answer_nothing).run()
        else:
            work = TaskServer(NOWHERE, credential).run()
        running = asyncio.create_task(work)
        await begun.wait()
        running.cancel()
        waiting = asyncio.create_task(again.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        is_over = running.done()
        await link.cancel_all(running, waiting)
        assert is_over

    asyncio.run(act())

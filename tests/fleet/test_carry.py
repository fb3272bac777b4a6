"""A request that is carried to another hub whose answer does not come at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen.fleet import carry
from bullpen.fleet.channel import Channel, Head
from tests.fleet.links import Two, until

SCOPE = {"type": "http", "method": "GET", "query_string": b"", "headers": []}


class Client:
    """Asks h2 by way of h1; hears what was sent on; leaves when it is told to."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.leaves = asyncio.Event()
        self._is_asked = False

    async def receive(self) -> Message:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b""}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Message) -> None:
        self.heard.append(event["type"])

    def ask(self, app: ASGIApp) -> "asyncio.Task[None]":
        async def answer(channel: Channel, head: Head, body: bytes) -> None:
            await carry.serve(app, "caller", channel, head, body)

        peers = Two(answer).peers["h1"]
        asking = carry.forward(peers, "h2", "", b"/x", SCOPE, self.receive, self.send)
        return asyncio.create_task(asking)


def run(work: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def test_l2_a_client_that_leaves_before_the_answer_is_noticed_on_both_sides() -> None:
    async def act() -> None:
        asked, told = asyncio.Event(), asyncio.Event()

        async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
            assert (await receive())["type"] == "http.request"
            asked.set()
            assert (await receive())["type"] == "http.disconnect"
            told.set()

        client = Client()
        asking = client.ask(app)
        await asked.wait()
        client.leaves.set()
        with pytest.raises(ClientDisconnect):
            await asking
        await told.wait()
        assert client.heard == []

    run(act)


@pytest.mark.parametrize("kind", [b"text/event-stream", b"text/event-stream; charset=utf-8"])
def test_l2_a_stream_of_events_begins_before_its_first_event(kind: bytes) -> None:
    async def act() -> None:
        goes_on = asyncio.Event()

        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            headers = [(b"content-type", kind)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await goes_on.wait()
            await send({"type": "http.response.body", "body": b"data: 1\n\n"})

        client = Client()
        asking = client.ask(app)
        await until(lambda: client.heard == ["http.response.start"])
        goes_on.set()
        await asking
        assert client.heard == ["http.response.start", "http.response.body"]

    run(act)

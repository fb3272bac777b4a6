"""Applications for servers in tests, and the loop that they run on."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

WAIT_SECONDS = 60.0


async def say_state(scope: Any, receive: Any, send: Any) -> None:
    """The application: answers with the state that the listener gave the request."""
    body = repr(scope["state"]).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def on_uvloop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), WAIT_SECONDS))


async def never_answer(_scope: Any, receive: Any, _send: Any) -> None:
    """An application whose requests are under way until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Until the server has closed the connection, without a word."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port

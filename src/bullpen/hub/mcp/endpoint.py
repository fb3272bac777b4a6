"""Serves `/agents/{name}/mcp`, and loads the tools when they are first needed. Who is let in, the
route decides (`http/mcp`).

A part of the hub, and an ASGI application. Never imports the SDK itself: `server` does, in a
thread, because that takes a second and 25 MB. A call whose client has gone is cancelled; when the
hub stops all open calls are cut off with an error 500, and the relays ask the next hub.
"""

import asyncio
from collections.abc import Iterable, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.types import Message, Receive, Scope, Send

from bullpen.component.answers import answer_error
from bullpen.engines import ENGINES
from bullpen.errors import BullpenError, Kind
from bullpen.hub.parts import Hub
from bullpen.model.event import Event

if TYPE_CHECKING:
    from bullpen.hub.mcp.server import ToolServer


class Endpoint:
    """The route. One for all agents; made with the application."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._server: asyncio.Task[ToolServer] | None = None
        self._running: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    # ── the hub's life ──

    def notice(self, events: Iterable[Event]) -> None:
        """The first agent that has tools starts: load them meanwhile."""
        for event in events:
            engine = ENGINES.get(str(event.data.get("engine", "")))
            if event.kind == "agent.starting" and engine is not None and engine.is_model:
                self._load()

    def leave(self) -> None:
        """The hub stops: every open call is cut off."""
        for call in list(self._calls):
            call.cancel()
        for task in (self._running, self._server):
            if task is not None:
                task.cancel()

    def _load(self) -> "asyncio.Task[ToolServer]":
        if self._server is None:
            self._server = asyncio.create_task(self._start(), name="load tools")
        return self._server

    async def _start(self) -> "ToolServer":
        module = await asyncio.to_thread(import_module, "bullpen.hub.mcp.server")
        server: ToolServer = await asyncio.to_thread(module.ToolServer, self._hub)
        ready = asyncio.Event()
        self._running = self._hub.background.begin(server.run(ready), "serve tools")
        await ready.wait()
        return server

    # ── one request ──

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except BullpenError as error:
            await answer_error(error)(scope, receive, send)
            return
        server = await asyncio.shield(self._load())
        body = await _read(receive)
        call = asyncio.create_task(server.handle(scope, _replayed(body), send))
        gone = asyncio.create_task(_wait_gone(receive))
        self._calls.add(call)
        try:
            await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._calls.discard(call)
            for task in (call, gone):
                task.cancel()
            await asyncio.wait({call, gone})
        if not call.cancelled():
            call.result()
            if b'"tools/list"' in body:
                self._hub.registry.get(scope["path_params"]["name"]).has_tools.set()

    def _check(self, scope: Scope) -> None:
        name = scope["path_params"]["name"]
        live = self._hub.registry.get(name)
        if not live.is_running:
            raise BullpenError(f"{name} has ended", kind=Kind.CONFLICT)


async def _read(receive: Receive) -> bytes:
    """The whole body; the guard limits it."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return b"".join(pieces)


def _replayed(body: bytes) -> Receive:
    """The body once, and then nothing: who leaves is noticed by the endpoint."""
    messages: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""A hub in this process, whose defences can be taken away by a test."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bullpen.component.http_server import HttpServer
from bullpen.home.paths import HUB, Home
from bullpen.home.settings import load_settings
from bullpen.hub import listen
from bullpen.hub.agents import tokens
from bullpen.hub.context import HubContext
from bullpen.hub.holders.factory import Factory
from bullpen.hub.http.app import make_app
from bullpen.hub.http.guard import Guard
from bullpen.hub.mcp.endpoint import Endpoint
from bullpen.hub.parts import Hub
from bullpen.hub.store.store import Store
from bullpen.model.event import Event
from tests.hub.http.http import WAIT
from tests.hub.pen import Pen

T = TypeVar("T")


class Inside:
    """A hub in a thread of this process, wired as `main` does it."""

    def __init__(self, home: Home, *, has_tools: bool) -> None:
        self.home = home
        self._has_tools = has_tools
        self.loop = uvloop.new_event_loop()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result(WAIT)

    @property
    def port(self) -> int:
        return self.hub.port

    @property
    def socket(self) -> Path:
        return self.home.socket(HUB)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the hub's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT)

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.hub.stop.set)
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        self.loop.close()

    def _run(self, started: Future[None]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        home, settings = self.home, load_settings(self.home.config_file)
        self.owner = tokens.owner_token(home)
        store = Store.open(home.root / "state.db")
        tcp, local = listen.bind_port(home, settings.port), listen.bind_socket(home)
        factory = Factory(home.factory_socket, 1024)
        context = HubContext(home, settings, tcp.getsockname()[1], home.root)
        self.hub = Hub(context, store, factory)

        def publish(events: list[Event]) -> None:
            self.loop.call_soon_threadsafe(self.hub.notice, events)

        store.on_commit = publish
        self.app = make_app(self.hub, Endpoint(self.hub) if self._has_tools else None)
        self.guard = Guard(
            self.app, self.hub.registry, self.hub.directors, self.owner, str(self.socket)
        )
        await factory.start()
        await self.hub.load()
        self.server = HttpServer(self.guard, self.hub.stop, self.hub.leave)
        await self.hub.agent_sockets.serve(self.server)
        serving = await self.server.start(local, tcp)
        # Of what goes on while a hub serves, only what requests wait for.
        self.hub.background.begin(self.hub.landings.run(), "landings")
        self.hub.background.begin(self.hub.permissions.approvals.run(), "approvals")
        started.set_result(None)
        await serving
        for task in self.hub.background.tasks:
            task.cancel()
        factory.leave()
        await asyncio.to_thread(store.close)
        await _end_others()


async def _end_others() -> None:
    """What goes on in the background ends with a hub's process. This one's is the tests' own."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=WAIT)


@contextlib.contextmanager
def made_inside(pen: Pen, *, has_tools: bool = False) -> Iterator[Inside]:
    inside = Inside(pen.home, has_tools=has_tools)
    try:
        yield inside
    finally:
        inside.close()

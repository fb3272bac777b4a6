"""A hub in this process, whose defences can be taken away by a test."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from bullpen.hub import main, place, tokens
from bullpen.hub.adopt import adopt
from bullpen.hub.factory import Factory
from bullpen.hub.feed import Feed
from bullpen.hub.guard import Guard
from bullpen.hub.http.app import make_app
from bullpen.hub.http.state import Hub
from bullpen.hub.launch import Ground
from bullpen.hub.registry import Registry
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.model.event import Event
from bullpen.paths import HUB, Home
from bullpen.settings import load_settings
from tests.api.http import WAIT
from tests.hub.pen import Pen

T = TypeVar("T")


class Inside:
    """A hub in a thread of this process, wired as `main` does it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.loop = uvicorn.Config("", loop="uvloop").get_loop_factory()()
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
        tcp, local = place.bind_port(home, settings.port), place.bind_socket(home)
        registry, factory, feed = Registry(), Factory(home.factory_socket, 1024), Feed(store)
        ground = Ground(home, settings, tcp.getsockname()[1], home.root)
        supervisor = Supervisor(ground, store, registry, factory)
        self.hub = Hub(home, settings, ground.port, store, feed, registry, supervisor)

        def publish(events: list[Event]) -> None:
            self.loop.call_soon_threadsafe(feed.publish, events)

        def leave() -> None:
            feed.close()
            self.hub.delivery.close()
            supervisor.doors.leave()

        store.on_commit = publish
        self.app = make_app(self.hub)
        self.guard = Guard(self.app, registry, self.owner, str(self.socket))
        config = main.server_config(self.guard)
        await factory.start()
        await adopt(supervisor)
        await self.hub.components.load()
        self.server = main.Server(config, self.hub.stop, leave)
        await supervisor.doors.serve(config, self.server.server_state)
        serving = asyncio.create_task(self.server.serve(sockets=[local, tcp]))
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.001)
        started.set_result(None)
        await serving
        factory.leave()
        await asyncio.to_thread(store.close)


@contextlib.contextmanager
def made_inside(pen: Pen) -> Iterator[Inside]:
    inside = Inside(pen.home)
    try:
        yield inside
    finally:
        inside.close()

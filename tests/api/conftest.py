"""A plain HTTP client that can say anything, and a hub in this process whose defences can be
taken away by a test. Where a hub has to be a process of its own, `tests.hub` has one."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
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
from tests.hub.conftest import Pen, made_pen

T = TypeVar("T")

WAIT = 30.0
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
Where = int | Path  # a port or a socket


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(where: Where, timeout: float = WAIT) -> socket.socket:
    """A connection; also to a socket whose path is too long for an address."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), timeout)
    directory = os.open(where.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(timeout)
        found.connect(f"/proc/self/fd/{directory}/{where.name}")
        return found
    finally:
        os.close(directory)


class Client(http.client.HTTPConnection):
    """Of the standard library, connected to anything."""

    def __init__(self, where: Where, timeout: float = WAIT) -> None:
        port = where if isinstance(where, int) else None
        super().__init__("127.0.0.1" if port else "localhost", port, timeout=timeout)
        self.where = where

    def connect(self) -> None:
        self.sock = connect(self.where, WAIT)

    def begin(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> http.client.HTTPResponse:
        """Ask, and read the head of the answer."""
        self.request(method, target, body or None, dict(headers))
        return self.getresponse()


def ask(
    where: Where,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    *,
    token: str = "",
    head_only: bool = False,
) -> Answer:
    """One request on a connection of its own. A body that is no bytes is sent as JSON."""
    given = dict(headers or {})
    if token:
        given["Authorization"] = f"Bearer {token}"
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body and "Content-Type" not in given:
        given["Content-Type"] = "application/json"
    with contextlib.closing(Client(where)) as client:
        answer = client.begin(method, target, given, body or b"")
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, fields, b"" if head_only else answer.read())


def raw(where: Where, data: bytes, timeout: float = WAIT, *, one: bool = False) -> bytes:
    """Send these bytes, and read until the hub closes the connection; or has answered once."""
    with connect(where, timeout) as talk:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.sendall(data)
        found = b""
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while piece := talk.recv(1 << 16):
                found += piece
                head, end, body = found.partition(b"\r\n\r\n")
                length = re.search(rb"\ncontent-length: ([0-9]+)", head)
                if one and end and (length is None or len(body) >= int(length[1])):
                    break
        return found


def token_of(home: Home, agent: str) -> str:
    """What the agent finds in its environment."""
    env = json.loads((home.private(agent) / "env").read_text())["env"]
    return str(env["BULLPEN_TOKEN"])


def door_of(home: Home, agent: str) -> Path:
    return home.session(agent) / "api" / "hub.sock"


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


def start_agent(where: Where, pen: Pen, name: str, token: str = "", **fields: Any) -> None:
    answer = ask(
        where, "POST", "/agents", body=pen.launch("/bin/cat", name=name, **fields), token=token
    )
    assert answer.status == 201, answer


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    """A hub with two agents, amy and bob, for all tests of a file that leave it running."""
    with made_pen() as pen, made_inside(pen) as made:
        for name in ("amy", "bob"):
            start_agent(made.socket, pen, name)
        yield made


@pytest.fixture
def fresh() -> Iterator[Inside]:
    """The same for one test."""
    with made_pen() as pen, made_inside(pen) as made:
        for name in ("amy", "bob"):
            start_agent(made.socket, pen, name)
        yield made


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home with a hub in a process of its own, and the agent amy."""
    with made_pen() as made:
        made.start()
        start_agent(made.home.socket(HUB), made, "amy")
        yield made

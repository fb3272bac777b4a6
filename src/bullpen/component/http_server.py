"""The one HTTP server of Bullpen: uvicorn, with our connections, signals and leaving.

Used by `hub/main` for the hub, by `hub/tasks/ports` and `hub/sandbox/agent_sockets` for further
sockets of the hub, and by `component/server` for directors, views and bridges. Knows no routes and
no tokens: those are the application's. Every listener but the owner's has a limit of connections,
and all of them together have one: the process keeps descriptors for the owner. Only this module
and `component/connection` use internals of uvicorn; `tests/component/test_http_server.py` names
them, `pyproject.toml` pins them.
"""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import uvicorn
import uvloop
from starlette.types import ASGIApp

from bullpen.component.connection import Connections, HttpConnection, WebSocketConnection
from bullpen.component.handshakes import TlsServer
from bullpen.component.memory import FreedMemory
from bullpen.component.ports import BACKLOG

LEAVE_SECONDS = 2  # for answers under way; streams are cut, and clients resume them
LOOK_SECONDS = 0.001
MESSAGE_BYTES = 1 << 20  # of a WebSocket
MOST_CONNECTIONS = 4096  # of one listener
FEWEST_CONNECTIONS = 16
TLS_BYTES = 1 << 17  # that a connection over TLS holds, more or less


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the main coroutine of a process that serves."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How everything is served, on every socket and port."""
    return uvicorn.Config(
        app,
        http=HttpConnection,
        ws=WebSocketConnection,
        lifespan="off",
        log_config=None,
        log_level="warning",  # at info the server logs queries, at debug what is typed
        access_log=False,
        proxy_headers=False,  # who asks is who is connected: nobody says another address
        server_header=False,
        date_header=False,  # `component/guard` adds one that is right also in an idle server
        timeout_graceful_shutdown=LEAVE_SECONDS,
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,
    )


@dataclass(eq=False)
class Listener:
    """A listening socket besides those that the server begins with."""

    socket: socket.socket
    # Put into the state of every request that comes in here: no client can change it.
    state: dict[str, Any] = field(default_factory=dict)
    backlog: int = BACKLOG
    most_connections: int = MOST_CONNECTIONS
    is_owners: bool = False  # only the owner can connect: no limit
    tls: ssl.SSLContext | None = None
    connections: Connections = field(default_factory=dict)
    server: asyncio.AbstractServer | TlsServer | None = None
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        """Nobody is connected, and nobody can."""
        return self.is_closed and not self.connections

    def close(self) -> None:
        """Let nobody in any more. Connections that are open stay open."""
        self.is_closed = True
        (self.server or self.socket).close()


class HttpServer(uvicorn.Server):
    """Serves until `stop` is set; calls `leave` before it waits for answers under way.

    An idle server sleeps (uvicorn's own wakes up ten times a second), and signals are left to the
    process.
    """

    def __init__(
        self, app: ASGIApp, stop: asyncio.Event, leave: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(server_config(app))
        self.config.load()
        self._stop = stop
        self._leave = leave
        self._listeners: set[Listener] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._files_limit = _files_limit()
        self._freed = FreedMemory(in_circles=True)

    async def start(self, *listeners: socket.socket) -> asyncio.Task[None]:
        """Serve there. It answers when this returns; the task ends when the server has left."""
        serving = asyncio.create_task(self.serve(sockets=list(listeners)), name="serve")
        while not self.started and not serving.done():
            await asyncio.sleep(LOOK_SECONDS)
        return serving

    def listen_on(self, listener: Listener) -> Listener:
        """Serve there, too, until the server leaves."""
        opening = asyncio.get_running_loop().create_task(self.accept(listener))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return listener

    async def accept(self, listener: Listener) -> None:
        """Serve there, too, until the listener is closed."""
        if listener.is_closed:
            return
        self._listeners = {listener, *(each for each in self._listeners if not each.is_over)}

        is_tls = listener.tls is not None

        def connection() -> asyncio.Protocol:
            return HttpConnection(
                config=self.config,
                server_state=self.server_state,
                app_state=listener.state,
                enter=lambda: listener.connections if self._has_room(listener) else None,
                leave=self._freed_tls if is_tls else lambda: None,
            )

        if listener.tls is not None:
            listener.server = TlsServer(listener.socket, listener.tls, connection, self._freed_tls)
            return
        listener.server = await asyncio.get_running_loop().create_server(
            connection, sock=listener.socket, backlog=listener.backlog
        )
        if listener.is_closed:  # while it was opened
            listener.server.close()

    def _freed_tls(self) -> None:
        self._freed.add(TLS_BYTES)

    def end_connections(self, listener: Listener) -> None:
        """End what came in there; answers under way have `LEAVE_SECONDS`."""
        for connection in list(listener.connections):
            if connection.transport is not None:
                connection.shutdown()
                asyncio.get_running_loop().call_later(LEAVE_SECONDS, connection.transport.abort)

    def _has_room(self, listener: Listener) -> bool:
        """Whether one more may connect there. For a newcomer an idle connection is ended: first
        those that have asked nothing yet, the oldest of them first."""
        if listener.is_owners:
            return True
        if len(listener.connections) >= min(listener.most_connections, self._most(4)):
            return _end_idle(listener.connections)
        if len(self.server_state.connections) < self._most(2):
            return True
        others = [each.connections for each in self._listeners if not each.is_owners]
        return _end_idle(max(others, key=len))

    def _most(self, share: int) -> int:
        """That share of our descriptors: the rest is for the owner, for holders and for files."""
        return max(FEWEST_CONNECTIONS, self._files_limit // share)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for each in sockets or ():
            # The Unix socket that a server begins with is in a directory of the owner's alone.
            await self.accept(Listener(each, is_owners=each.family == socket.AF_UNIX))
        await super().startup(sockets=[])

    async def main_loop(self) -> None:
        await self._stop.wait()
        for listener in self._listeners:
            listener.close()
        self._leave()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _files_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit


def _end_idle(connections: Connections) -> bool:
    """End one on which no request is under way; False if there is none."""
    idle = (each for each in connections if each.transport is not None and each.is_idle)
    victim = None
    for each in idle:
        victim = victim or each
        if not each.has_asked:
            victim = each
            break
    if victim is None:
        return False
    del connections[victim]
    victim.transport.abort()
    return True


L = TypeVar("L", bound=Listener)


class Listeners(Generic[L]):
    """Listeners by name, of one server. Those opened before it is known wait for `serve`."""

    def __init__(self) -> None:
        self._by_name: dict[str, L] = {}
        self._server: HttpServer | None = None

    def find(self, name: str) -> L | None:
        return self._by_name.get(name)

    async def open(self, name: str, listener: L) -> None:
        """Serve there, in place of the listener that had the name."""
        self.close(name)
        self._by_name[name] = listener
        if self._server is not None:
            await self._server.accept(listener)

    def close(self, name: str) -> None:
        """Let nobody in any more, and end the connections that are open."""
        listener = self._by_name.pop(name, None)
        if listener is None:
            return
        listener.close()
        if self._server is not None:
            self._server.end_connections(listener)

    async def serve(self, server: HttpServer) -> None:
        """Let that server answer at all of them, those of now and those to come."""
        self._server = server
        for listener in list(self._by_name.values()):
            await server.accept(listener)

    def leave(self) -> None:
        """The server leaves: let nobody in any more."""
        for listener in self._by_name.values():
            listener.close()
        self._by_name.clear()

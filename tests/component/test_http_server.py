"""The one HTTP server: what it uses of uvicorn, where it answers, how it leaves."""

import asyncio
import contextlib
import inspect
import signal
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from bullpen.component import http_server
from bullpen.component.connection import HttpConnection, WebSocketConnection
from bullpen.component.http_server import HttpServer, Listener, Listeners
from bullpen.component.ports import LOOPBACK, listen
from tests.component.serving import is_ended, never_answer, on_uvloop, port_of, say_state

# The internals of uvicorn that Bullpen overrides or calls. A name that is gone, or that uvicorn no
# longer calls itself, is a change of behaviour: look at it before the pin in pyproject is moved.
METHODS = {
    uvicorn.Server: ("serve", "startup", "main_loop", "capture_signals"),
    HttpToolsProtocol: (
        *("connection_made", "connection_lost", "data_received", "shutdown"),
        *("on_header", "on_headers_complete", "on_message_complete", "on_response_complete"),
        "_start_asgi_task",
        *("handle_websocket_upgrade", "send_400_response"),
    ),
    WebSocketsSansIOProtocol: ("send", "shutdown", "connection_lost"),
}
CALLED_BY = {
    "main_loop": uvicorn.Server._serve,
    "startup": uvicorn.Server._serve,
    "on_response_complete": HttpToolsProtocol.on_headers_complete,
    "capture_signals": uvicorn.Server.serve,
    "handle_websocket_upgrade": HttpToolsProtocol.data_received,
    "send_400_response": HttpToolsProtocol.data_received,
    "handshake_complete": WebSocketsSansIOProtocol.run_asgi,
}
SERVER_STATE = ("config", "server_state", "started")
CONNECTION_STATE = ("app_state", "transport", "loop", "cycle", "scope", "headers")


@contextlib.asynccontextmanager
async def serving(app: Any = say_state) -> AsyncIterator[tuple[HttpServer, int]]:
    stop, listener = asyncio.Event(), listen(0)
    server = HttpServer(app, stop)
    task = await server.start(listener)
    try:
        yield server, listener.getsockname()[1]
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask(port: int, how: str = "close") -> str:
    async with connected(port) as (reader, writer):
        writer.write(f"GET / HTTP/1.1\r\nhost: x\r\nconnection: {how}\r\n\r\n".encode())
        return (await reader.read()).decode().partition("\r\n\r\n")[2]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def is_refused(port: int) -> bool:
    try:
        async with connected(port):
            return False
    except ConnectionRefusedError:
        return True


# ── uvicorn ──


def test_uvicorn_has_the_methods_that_are_overridden_or_called() -> None:
    for owner, names in METHODS.items():
        missing = [name for name in names if not inspect.isfunction(getattr(owner, name, None))]
        assert not missing, f"uvicorn's {owner.__name__} has no {missing}"
    for name, caller in CALLED_BY.items():
        assert name in caller.__code__.co_names, f"{caller.__qualname__} does not use {name}"
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__)


def test_every_method_that_the_server_and_its_connections_override_is_named_above() -> None:
    for ours, base in (
        (HttpServer, uvicorn.Server),
        (HttpConnection, HttpToolsProtocol),
        (WebSocketConnection, WebSocketsSansIOProtocol),
    ):
        overridden = {name for name in vars(ours) if name in vars(base) and name[0] != "_"}
        assert overridden <= set(METHODS[base])


def test_uvicorn_has_the_state_that_is_read() -> None:
    async def look() -> None:
        server = HttpServer(say_state, asyncio.Event())
        assert [name for name in SERVER_STATE if not hasattr(server, name)] == []
        assert server.server_state.connections == set()
        connection = server.config.http_protocol_class(
            config=server.config, server_state=server.server_state, app_state={}, enter=dict
        )
        assert isinstance(connection, HttpConnection)
        assert [name for name in CONNECTION_STATE if not hasattr(connection, name)] == []
        socket_connection = server.config.ws_protocol_class(
            config=server.config, server_state=server.server_state, app_state={}
        )
        assert isinstance(socket_connection, WebSocketConnection)
        assert socket_connection.handshake_complete is False

    on_uvloop(look)


def test_uvicorn_is_pinned_below_the_next_minor_version() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (pin,) = [each for each in project["dependencies"] if each.startswith("uvicorn")]
    major, minor = uvicorn.__version__.split(".")[:2]
    assert pin == f"uvicorn>={major}.{minor},<{major}.{int(minor) + 1}"


# ── serving ──


def test_it_serves_until_it_is_told_to_stop_and_leaves_signals_alone() -> None:
    told = []

    async def story() -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        stop, listener = asyncio.Event(), listen(0)
        server = HttpServer(say_state, stop, lambda: told.append("leave"))
        port = port_of(listener)
        task = await server.start(listener)
        assert await ask(port) == "{}"
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert not told
        stop.set()
        await task
        assert told == ["leave"]
        assert await is_refused(port)

    on_uvloop(story)


def test_a_listener_gives_its_state_to_every_request() -> None:
    async def story() -> None:
        async with serving() as (server, port):
            listener = Listener(listen(0), {"agent": "amy"})
            server.listen_on(listener)
            assert await ask(port_of(listener.socket)) == "{'agent': 'amy'}"
            assert await ask(port) == "{}"

    on_uvloop(story)


ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def test_x8_a_newcomer_gets_the_place_of_the_oldest_connection_that_has_asked_nothing() -> None:
    async def story() -> None:
        async with serving() as (server, port):
            listener = Listener(listen(0), {}, most_connections=3)
            await server.accept(listener)
            own = port_of(listener.socket)
            async with connected(own) as asked, connected(own) as old, connected(own) as new:
                asked[1].write(ASK)
                assert (await asked[0].readline()).startswith(b"HTTP/1.1 200")
                await until(lambda: len(listener.connections) == 3)
                assert await ask(own) == "{}"
                assert await is_ended(old[0])  # though `asked` is older
                new[1].write(ASK)
                assert (await new[0].readline()).startswith(b"HTTP/1.1 200")
                assert await ask(port) == "{}"

    on_uvloop(story)


def test_x8_a_newcomer_is_refused_where_every_connection_is_at_work() -> None:
    async def story() -> None:
        async with serving(never_answer) as (server, _):
            listener = Listener(listen(0), {}, most_connections=2)
            await server.accept(listener)
            own = port_of(listener.socket)
            async with connected(own) as one, connected(own) as two:
                for _, writer in (one, two):
                    writer.write(ASK)
                await until(lambda: sum(not each.is_idle for each in listener.connections) == 2)
                async with connected(own) as three:
                    assert await is_ended(three[0])
                assert not (one[0].at_eof() or two[0].at_eof())

    on_uvloop(story)


def test_listeners_that_are_opened_before_the_server_wait_for_it() -> None:
    async def story() -> None:
        listeners: Listeners[Listener] = Listeners()
        early, late = Listener(listen(0), {"early": 1}), Listener(listen(0), {"late": 1})
        closed = Listener(listen(0))
        await listeners.open("early", early)
        await listeners.open("closed", closed)
        listeners.close("closed")
        waiting = asyncio.ensure_future(ask(port_of(early.socket)))
        async with serving() as (server, _):
            await listeners.serve(server)
            assert await waiting == "{'early': 1}"
            await listeners.open("late", late)
            assert await ask(port_of(late.socket)) == "{'late': 1}"
            await server.accept(closed)  # is not opened again
            assert closed.server is None
            port = port_of(early.socket)
            listeners.leave()
            assert await is_refused(port)

    on_uvloop(story)


def test_who_is_connected_leaves_with_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        listeners: Listeners[Listener] = Listeners()
        async with serving() as (server, port):
            server.config.timeout_keep_alive = 3600  # that does not end it
            await listeners.serve(server)
            first, second = Listener(listen(0)), Listener(listen(0))
            await listeners.open("amy", first)
            async with (
                connected(port_of(first.socket)) as (reader, writer),
                connected(port) as own,
            ):
                for line in (writer, own[1]):
                    line.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
                await listeners.open("amy", second)
                assert await reader.read() == b""
                own[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                for _ in range(2):
                    assert (await own[0].readuntil(b"{}")).startswith(b"HTTP/1.1 200")
            assert await ask(port_of(second.socket)) == "{}"

    monkeypatch.setattr(http_server, "LEAVE_SECONDS", 0.05)
    on_uvloop(story)

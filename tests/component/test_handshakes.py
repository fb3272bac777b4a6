"""TLS: strangers who shake no hands keep nobody out (X8, V1)."""

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from bullpen.component import handshakes, http_server, memory
from bullpen.component.http_server import HttpServer, Listener
from bullpen.component.network import network_of
from bullpen.component.ports import LOOPBACK, listen
from bullpen.web import tls
from bullpen.web.certificate import Wanted, ensure
from tests.component.serving import is_ended, never_answer, on_uvloop, port_of, say_state

ASK = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tls.Files:
    directory = tmp_path_factory.mktemp("tls")
    ensure(directory, Wanted(("localhost",), ()), datetime.datetime.now(datetime.UTC))
    return tls.own(directory)


@contextlib.asynccontextmanager
async def serving(
    files: tls.Files, most: int = 512, app: object = say_state
) -> AsyncIterator[Listener]:
    stop = asyncio.Event()
    server = HttpServer(app, stop)  # type: ignore[arg-type]
    listener = Listener(listen(0), most_connections=most, tls=tls.context(files))
    task = await server.start()
    await server.accept(listener)
    try:
        yield listener
    finally:
        stop.set()
        await task


async def silent(listener: Listener, source: str = LOOPBACK) -> Line:
    """Somebody who connects and says nothing; the server has seen it."""
    before = handshakes_of(listener)
    line = await asyncio.open_connection(LOOPBACK, port_of(listener.socket), local_addr=(source, 0))
    while not handshakes_of(listener) - before:
        await asyncio.sleep(0.001)
    return line


def handshakes_of(listener: Listener) -> set[object]:
    assert isinstance(listener.server, handshakes.TlsServer)
    return set(listener.server._under_way)


async def ask(listener: Listener, files: tls.Files) -> str:
    context = ssl.create_default_context(cafile=files.cert.with_name("ca.pem"))
    reader, writer = await asyncio.open_connection(
        LOOPBACK, port_of(listener.socket), ssl=context, server_hostname="localhost"
    )
    with contextlib.closing(writer):
        writer.write(ASK)
        return (await reader.read()).decode().partition("\r\n")[0]


def close(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_x8_who_has_shaken_no_hands_has_no_place(certificate: tls.Files, said: bytes) -> None:
    async def story() -> None:
        async with serving(certificate, most=2) as listener:
            lines = []
            for _ in range(5):
                lines.append(await silent(listener))
                lines[-1][1].write(said)
                if said:
                    with contextlib.suppress(ConnectionResetError):
                        await lines[-1][0].read()  # an alert
                close(lines[-1:])
            assert await ask(listener, certificate) == "HTTP/1.1 200 OK"
            while handshakes_of(listener) or listener.connections:
                await asyncio.sleep(0.001)

    on_uvloop(story)


def test_x8_who_does_not_trust_the_certificate_leaves_no_place_behind(
    certificate: tls.Files,
) -> None:
    async def story() -> None:
        async with serving(certificate, most=2) as listener:
            for _ in range(5):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await asyncio.open_connection(
                        LOOPBACK,
                        port_of(listener.socket),
                        ssl=ssl.create_default_context(),
                        server_hostname="localhost",
                    )
            assert await ask(listener, certificate) == "HTTP/1.1 200 OK"

    on_uvloop(story)


def test_x8_the_oldest_handshake_of_whoever_has_most_ends_for_a_newcomer(
    certificate: tls.Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with serving(certificate) as listener:
            patient = await silent(listener)
            crowd = [await silent(listener, "127.0.0.2") for _ in range(5)]
            newcomer = await silent(listener)
            assert await is_ended(crowd[0][0])  # though `patient` is older
            assert await ask(listener, certificate) == "HTTP/1.1 200 OK"
            assert not patient[0].at_eof()
            close([patient, *crowd, newcomer])

    monkeypatch.setattr(handshakes, "MOST_HANDSHAKES", 6)
    on_uvloop(story)


def test_x8_without_the_limit_strangers_have_as_many_descriptors_as_they_like(
    certificate: tls.Files,
) -> None:
    async def story() -> None:
        async with serving(certificate) as listener:
            crowd = [await silent(listener) for _ in range(8)]
            assert len(handshakes_of(listener)) == 8
            close(crowd)

    on_uvloop(story)


def test_x8_a_newcomer_is_refused_where_every_connection_is_at_work(
    certificate: tls.Files,
) -> None:
    async def story() -> None:
        async with serving(certificate, most=1, app=never_answer) as listener:
            context = ssl.create_default_context(cafile=certificate.cert.with_name("ca.pem"))
            _, writer = await asyncio.open_connection(
                LOOPBACK, port_of(listener.socket), ssl=context, server_hostname="localhost"
            )
            writer.write(ASK)
            while not any(not each.is_idle for each in listener.connections):
                await asyncio.sleep(0.001)
            with contextlib.suppress(OSError):  # cut off
                assert await ask(listener, certificate) == ""
            assert len(listener.connections) == 1
            writer.transport.abort()

    on_uvloop(story)


def test_a_closed_listener_lets_nobody_in(certificate: tls.Files) -> None:
    async def story() -> None:
        async with serving(certificate) as listener:
            port = port_of(listener.socket)
            waiting = await silent(listener)
            listener.close()
            assert await is_ended(waiting[0])
            while listener.socket.fileno() >= 0:
                await asyncio.sleep(0.001)
            with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, port)):
                pass

    on_uvloop(story)


def test_v2_one_network_of_ipv6_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") != network_of("2001:db8:0:1::")
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("fe80::1%eth0") == "fe80::"
    assert network_of("") == ""


@pytest.mark.parametrize("kind", ["nonsense", "silent", "asked"])
def test_v1_memory_of_connections_that_are_over_goes_back_to_the_system(
    certificate: tls.Files, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(memory, "return_free_memory", lambda: given_back.append(None))
    monkeypatch.setattr(memory, "MUCH_BYTES", 3 * http_server.TLS_BYTES)
    monkeypatch.setattr(memory, "QUIET_SECONDS", 0.0)

    async def connect_and_leave(listener: Listener) -> None:
        if kind == "asked":
            await ask(listener, certificate)
            return
        line = await silent(listener)
        if kind == "nonsense":
            line[1].write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                await line[0].read()
        close([line])

    async def story() -> None:
        async with serving(certificate) as listener:
            for _ in range(2):
                await connect_and_leave(listener)
            assert given_back == []
            await connect_and_leave(listener)
            while not given_back:
                await asyncio.sleep(0.001)

    on_uvloop(story)
    assert len(given_back) == 1

"""Connecting to a server that is there and does not do what a server does."""

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from bullpen.fleet import link
from bullpen.fleet.credential import issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.server_certificate import ensure_certificate
from tests.fleet.machines import SERVER
from tests.ports import reserved_port
from tests.waiting import wait_until


def open_sockets() -> int:
    """How many this process has."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += str(descriptor.readlink()).startswith("socket:")
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


@pytest.mark.slow
def test_l5_a_server_that_falls_silent_after_tls_costs_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "CONNECT_SECONDS", 0.5)

    async def try_thrice() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        credential = issue(make_seed(), "h1", make_seed(), ensure_certificate(tmp_path))
        context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
        accepted: list[asyncio.StreamWriter] = []  # so that nobody but the client closes them

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await reader.read()  # until the client has closed it
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        before = open_sockets()
        while len(accepted) < 3:  # on a slow machine TLS itself may take too long
            with pytest.raises(ConnectionError):
                await link.connect(f"nats://127.0.0.1:{port}", credential)
        async with asyncio.timeout(60):
            while open_sockets() > before:
                await asyncio.sleep(0.01)
        server.close()

    asyncio.run(try_thrice())


def test_l5_a_server_without_tls_or_one_that_says_nothing_is_named_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = issue(make_seed(), "h1", make_seed(), ensure_certificate(tmp_path))

    async def refused(port: int) -> str:
        with pytest.raises(ConnectionError) as caught:
            await link.connect(f"nats://127.0.0.1:{port}", credential)
        return str(caught.value)

    with reserved_port() as port, (tmp_path / "log").open("wb") as log:
        words = [SERVER, "-a", "127.0.0.1", "-p", str(port)]
        with subprocess.Popen(words, stderr=log) as server:
            wait_until(lambda: b"Server is ready" in (tmp_path / "log").read_bytes())
            assert "speaks no TLS" in asyncio.run(refused(port))
            server.kill()
    monkeypatch.setattr(link, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(link, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "does not answer" in asyncio.run(refused(silent.getsockname()[1]))

"""Connecting to a server that is there and does not do what a server does."""

import asyncio
import ssl
from pathlib import Path

import pytest

from bullpen.fleet import link
from bullpen.fleet.credential import issue
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.server_certificate import ensure_certificate


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

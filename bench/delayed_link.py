"""A link with a delay: a relay that passes everything on that much later, both ways.

`python -m bench.delayed_link SECONDS PORT` prints two ports of its own: one leads to that port, the
other to a program that sends back what it gets. (`tc netem` needs root and a kernel that has it.)
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.table import WAIT_SECONDS

PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class DelayedLink:
    """Ports of this machine that are reached with a delay."""

    port: int
    echo_port: int

    def open_echo(self) -> socket.socket:
        """A connection on which everything comes back."""
        line = socket.create_connection(("127.0.0.1", self.echo_port), WAIT_SECONDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line


@contextmanager
def delayed_link(seconds: float, port: int) -> Iterator[DelayedLink]:
    """It takes so long each way."""
    words = [sys.executable, "-m", "bench.delayed_link", str(seconds), str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout
        try:
            yield DelayedLink(*json.loads(relay.stdout.readline()))
        finally:
            relay.kill()


# ── in that process ──


async def _serve(seconds: float, port: int) -> None:
    async def give_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
        writer.close()

    async def relay(
        target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        for line in (writer, far_writer):
            line.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            _pass_on(seconds, reader, far_writer), _pass_on(seconds, far_reader, writer)
        )

    echo = await asyncio.start_server(give_back, "127.0.0.1", 0)
    ports = []
    for target in (port, echo.sockets[0].getsockname()[1]):
        listening = await asyncio.start_server(
            lambda reader, writer, target=target: relay(target, reader, writer), "127.0.0.1", 0
        )
        ports.append(listening.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


async def _pass_on(
    seconds: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(PIECE_BYTES):
        loop.call_later(seconds, writer.write, data)
    loop.call_later(seconds, writer.close)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), int(sys.argv[2])))

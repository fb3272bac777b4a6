"""Machines without networks of their own: each has an address of the loopback network, and reaches
the servers over a cable that can be cut. Needs no rights, unlike `networks`.

A cut cable carries nothing and says nothing of it; what was on it arrives when it is mended, as
with TCP.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

PORT = 4222
PIECE = 1 << 16


class Relays:
    """Takes the place of `Networks`. Cables of servers among each other cannot be cut."""

    def __init__(self, servers: Sequence[str], hosts: Sequence[str]) -> None:
        number = os.getpid() % (120 << 8)
        self._net = f"127.{1 + (number >> 8)}.{number & 255}"
        self.addresses = {name: f"{self._net}.{at}" for at, name in enumerate(servers, 1)}
        self._cables = {
            host: {f"{self._net}.{10 * row + at}": to for at, to in enumerate(servers, 1)}
            for row, host in enumerate(hosts, 1)
        }
        self._whole = {host: asyncio.Event() for host in hosts}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def within(self, _name: str) -> list[str]:
        """In front of a command line: nothing."""
        return []

    def servers_of(self, host: str) -> list[str]:
        """Where that host reaches the servers."""
        return list(self._cables[host])

    def cut(self, host: str) -> None:
        self._loop.call_soon_threadsafe(self._whole[host].clear)

    def heal(self, host: str) -> None:
        self._loop.call_soon_threadsafe(self._whole[host].set)

    def open(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _listen(self) -> None:
        for host, cables in self._cables.items():
            self._whole[host].set()
            for address, server in cables.items():
                await asyncio.start_server(self._carrier(host, server), address, PORT)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _carrier(self, host: str, server: str):  # type: ignore[no-untyped-def]
        whole = self._whole[host]

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await whole.wait()
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection(self.addresses[server], PORT)
                ways = [
                    asyncio.create_task(_carry(reader, there[1], whole)),
                    asyncio.create_task(_carry(there[0], writer, whole)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                there[1].close()
            writer.close()

        return carry


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: asyncio.Event
) -> None:
    while piece := await reader.read(PIECE):
        await whole.wait()
        writer.write(piece)
        await writer.drain()


@contextlib.contextmanager
def made_relays(servers: Sequence[str], hosts: Sequence[str]) -> Iterator[Relays]:
    """All cables are whole."""
    relays = Relays(servers, hosts)
    relays.open()
    try:
        yield relays
    finally:
        relays.close()

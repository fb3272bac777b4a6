"""Links of hosts in this process, and somebody for whom the server's own rules do not count."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import nats
from nats.aio.client import Client

from bullpen.fleet.channel import Channel, ChannelOverError, Head
from bullpen.fleet.credential import Credential, issue, read_credential
from bullpen.fleet.link import Link
from bullpen.fleet.nkeys import make_seed
from bullpen.fleet.peers import Peers
from bullpen.fleet.server_certificate import trusting
from bullpen.model.fleet import HostState
from tests.fleet.machines import Machines

Answer = Callable[[Channel, Head, bytes], Awaitable[None]]


def credential(machines: Machines, host: str) -> Credential:
    return read_credential(machines.directory / f"{host}.json")


def describe(host: str) -> HostState:
    """That of a host without agents."""
    return HostState(name=host, version="1", at=time.time())


async def eve(machines: Machines, name: str = "eve") -> Client:
    """Publishes and reads whatever she likes; `mallory` does so in the account of the queue."""
    tls = trusting(credential(machines, "h1").server)
    return await nats.connect(
        machines.url, user=name, password=name, tls=tls, tls_handshake_first=True
    )


async def reached(client: Client) -> None:
    """The server has done all that this client asked for before. One flush would not say so: its
    PING overtakes what the library has not written yet (nats-py 2.16)."""
    await client.flush()
    await client.flush()


async def answer_nothing(_channel: Channel, _head: Head, _body: bytes) -> None:
    """Ends the conversation."""


def make_link(machines: Machines, host: str, answer: Answer = answer_nothing) -> Link:
    return Link(machines.url, credential(machines, host), lambda: describe(host), answer)


@contextlib.asynccontextmanager
async def running(*links: Link) -> AsyncIterator[None]:
    """All are connected; at the end they leave."""
    tasks = [asyncio.create_task(link.run()) for link in links]
    try:
        await until(lambda: all(link.state.link == "connected" for link in links))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def until_true(ask: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(60):
        while not await ask():
            await asyncio.sleep(0.05)


async def answer_at_the_end(channel: Channel, _head: Head, _body: bytes) -> None:
    """Waits until somebody ends the conversation."""
    await channel.receive()


class Two:
    """h1 and h2 with nothing between them: what one says the other hears at once."""

    def __init__(self, answer: Answer = answer_at_the_end) -> None:
        self._answer = answer
        authority = make_seed()
        self.keys = {host: issue(authority, host, make_seed()) for host in ("h1", "h2")}
        self.peers: dict[str, Peers] = {}
        self.is_away = False
        for host in self.keys:
            self.start(host)

    def start(self, host: str) -> None:
        """Again: it knows nothing of before."""
        self.peers[host] = Peers(self.keys[host], self._publish, self._answer)
        for other in self.peers.values():
            other.learn(host, self.peers[host].life)

    async def _publish(self, subject: str, data: bytes, _reply: str) -> None:
        if self.is_away:
            raise ChannelOverError("away")
        await self.peers[subject.split(".")[1]].hear(subject, data, False)

"""Many hosts in one process, as far as the server of a fleet sees them.

`python -m bench.simulated_hosts KIND PORT KEY…`: `presence` says that each is there and what it is
doing; `whole` also asks for tasks and letters, as an idle hub does. It prints a line when all have
joined, and answers each line that it reads: `bytes` with how many have gone by on its connections,
`beats N` with how many seconds N beats take that do not wait for each other.
"""

import asyncio
import logging
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench.nats_server import Server, url_of
from bullpen.fleet import link, presence
from bullpen.fleet.channel import Channel, Head
from bullpen.fleet.credential import Credential, read_credential
from bullpen.fleet.kept_connection import KeptConnection
from bullpen.fleet.mail_server import MailServer
from bullpen.fleet.task_server import TaskServer
from bullpen.hub.fleet_mail.incoming import PULL_SECONDS
from bullpen.hub.fleet_tasks.incoming import NEEDS_SECONDS
from bullpen.model.fleet import HostAgent, HostState

AGENTS = 5  # of each
# Of the kernel's `struct tcp_info`: bytes that the other side has taken, and that it has sent.
TAKEN_AND_SENT, TAKEN_AT, INFO_BYTES = struct.Struct("QQ"), 120, 256


class SimulatedHosts:
    """Those of one process."""

    def __init__(self, pipes: tuple[IO[str], IO[str]]) -> None:
        self._pipes = pipes

    def ask(self, line: str) -> float:
        asked, answers = self._pipes
        asked.write(f"{line}\n")
        asked.flush()
        return float(answers.readline())


@contextmanager
def simulated_hosts(kind: str, server: Server, hosts: Sequence[str]) -> Iterator[SimulatedHosts]:
    """All have joined; they leave at the end."""
    files = [str(server.keys[host]) for host in hosts]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.simulated_hosts", kind, str(server.port), *files],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout
        try:
            if process.stdout.readline() != "joined\n":
                raise RuntimeError("the simulated hosts did not join")
            yield SimulatedHosts((process.stdin, process.stdout))
        finally:
            process.stdin.close()
            process.wait()


# ── in that process ──


async def _serve(kind: str, port: int, files: Sequence[str]) -> None:
    credentials = [read_credential(Path(file)) for file in files]
    links = [
        link.Link(url_of(port), each, partial(describe, each.host), _answer) for each in credentials
    ]
    works: list[Any] = [each.run() for each in links]
    connections: list[KeptConnection] = []
    if kind == "whole":
        for each in credentials:
            tasks = TaskServer(url_of(port), each)
            mail = MailServer(url_of(port), each, lambda _subject, _data: None, lambda: None)
            connections += [tasks, mail]
            works += [tasks.run(), mail.run(), _ask_for_tasks(tasks), _ask_for_letters(mail)]
    running = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*(each.joined.wait() for each in links))
        await asyncio.gather(*(each.is_connected.wait() for each in connections))
        print("joined", flush=True)
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            if words[0] == "bytes":
                answer = float(_socket_bytes(port))
            else:
                answer = await _beat(credentials, links, port, int(words[1]))
            print(answer, flush=True)
    finally:
        await link.cancel_all(*running)


def describe(host: str) -> HostState:
    """What a hub says of itself. Its clock is right: to read of a wrong one is more work."""
    now = time.time()
    agents = tuple(
        HostAgent(
            name=f"agent-{number}",
            role="coder",
            state="idle",
            words="idle",
            since=now - 60,
            running=True,
        )
        for number in range(AGENTS)
    )
    return HostState(name=host, version="0.1.0", labels={"gpu": "no"}, agents=agents, at=now)


async def _answer(_channel: Channel, _head: Head, _body: bytes) -> None:
    """Nobody asks."""


async def _ask_for_tasks(server: TaskServer) -> None:
    while True:
        await server.list_needs()
        await asyncio.sleep(NEEDS_SECONDS)


async def _ask_for_letters(server: MailServer) -> None:
    while True:
        await server.pull(PULL_SECONDS)


async def _beat(
    credentials: Sequence[Credential], links: Sequence[link.Link], port: int, count: int
) -> float:
    """On connections of their own, by all hosts at once, each one after the other."""
    clients = [await link.connect(url_of(port), each) for each in credentials]
    lives = [each.peers.life for each in links]

    async def beat(number: int) -> None:
        for _ in range(count // len(clients)):
            # Now and then the host's own beat comes between.
            with suppress(link.JetStreamError):
                host = credentials[number].host
                await presence.say_live(clients[number], host, lives[number])

    start = time.perf_counter()
    await asyncio.gather(*map(beat, range(len(clients))))
    seconds = time.perf_counter() - start
    for client in clients:
        await link.close(client)
    return seconds


def _socket_bytes(port: int) -> int:
    """Both ways, of all connections of this process to that port: TLS and all."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as line:
            if line.family == socket.AF_INET and line.getpeername()[1] == port:
                info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                total += sum(TAKEN_AND_SENT.unpack_from(info, TAKEN_AT))
    return total


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # of connections that end
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

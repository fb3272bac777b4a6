"""The way out of a sandbox without network: CONNECT to the model's API, and to nothing else.

One socket per agent, `<session>/api/tunnel.sock`, beside its socket to the hub. It speaks as much
HTTP as a proxy has to before it passes bytes on, which it does not look at. What an agent may reach
is decided when it is started, by its engine, never by what it asks for.
"""

import asyncio
import contextlib
import logging
import re
from dataclasses import dataclass, field

from bullpen.home.paths import Home
from bullpen.hub.sandbox.agent_sockets import BACKLOG, listen, unlink

log = logging.getLogger("bullpen.hub")

SOCKET = "tunnel.sock"
HEAD_BYTES = 1 << 14
HEAD_SECONDS = 20.0
CONNECT_SECONDS = 20.0
PIECE_BYTES = 1 << 16
MOST_CONNECTIONS = 256
REQUEST = re.compile(rb"CONNECT ([!-~]{1,300}) HTTP/1\.[01]\r\n(?:[^\r\n]{0,4096}\r\n){0,64}\r\n")


@dataclass
class _Way:
    """One agent's, from its opening to its end."""

    allowed: frozenset[str]
    server: asyncio.AbstractServer | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    is_shut: bool = False

    def shut(self) -> None:
        """Nobody comes through any more, and who is in there is cut off."""
        self.is_shut = True
        if self.server is not None:
            self.server.close()
        for task in self.tasks:
            task.cancel()

    def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, agent: str) -> None:
        # One that was accepted when it was shut comes in here after that.
        if self.is_shut or len(self.tasks) >= MOST_CONNECTIONS:
            writer.close()
            return
        work = _serve(reader, writer, self.allowed, agent)
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # Cancelled before its first step, the work itself closes nothing.
        task.add_done_callback(lambda _task: writer.close())


class Tunnels:
    """All open tunnels; lives on one event loop."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[str, _Way] = {}

    async def open(self, name: str, hosts: tuple[str, ...]) -> None:
        """Let that agent reach these (`host:port`), and no others any more."""
        tunnel = self._open.get(name)
        if tunnel is not None and tunnel.allowed == frozenset(hosts):
            return
        self.close(name)
        if not hosts:
            return
        listener = await asyncio.to_thread(listen, self._home.session(name), SOCKET)
        way = _Way(frozenset(hosts))

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            way.enter(reader, writer, name)

        way.server = await asyncio.start_unix_server(
            connected, sock=listener, limit=HEAD_BYTES, backlog=BACKLOG
        )
        self._open[name] = way

    def close(self, name: str) -> None:
        """Nobody comes through any more, and who is in there is cut off."""
        tunnel = self._open.pop(name, None)
        if tunnel is None:
            return
        tunnel.shut()
        unlink(self._home.session(name), SOCKET)

    def leave(self) -> None:
        """The hub stops."""
        for way in self._open.values():
            way.shut()


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: frozenset[str], name: str
) -> None:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        request = REQUEST.fullmatch(head)
        if request is None:
            await _answer(writer, "405 Method Not Allowed", "only CONNECT leads out of here")
            return
        target = request[1].decode("ascii")
        if target.lower() not in allowed:
            log.warning("a sandbox asked for a host", extra={"agent": name, "host": target})
            await _answer(writer, "403 Forbidden", f"{target} is not to be reached from here")
            return
        await _pass_on(reader, writer, target)
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return
    finally:
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
    host, _, port = target.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        await _answer(writer, "502 Bad Gateway", f"{target}: {error or 'no answer'}")
        return
    try:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, far_writer))
            group.create_task(_copy(far_reader, writer))
    finally:
        far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = text.encode("ascii", "replace") + b"\n"
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()

"""Agents' own doors to the API: `<session>/api/hub.sock`, a socket with one agent's rights.

A sandbox mounts the directory, never a socket's file: that would be dead after a restart of
the hub, while in the same directory each hub can put a new one. `start` opens a door
before an agent's program starts, `watch` closes it at its end, `adopt` opens those of agents that
it found. Whose door a request came through is told by the listener itself, under `DOOR` in
the state of the request; nothing that a client sends can change it.
"""

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.paths import Home

DOOR = "door"
DIRECTORY = "api"
SOCKET = "hub.sock"
BACKLOG = 64
MOST_CONNECTIONS = 256  # of one agent
LEAVE_SECONDS = 2.0  # for answers under way when an agent has ended
DESCRIPTORS = Path("/proc/self/fd")


@dataclass
class _Door:
    run: str
    state: dict[str, Any]  # of every request that comes through
    listener: socket.socket
    server: asyncio.AbstractServer | None = None


class Doors:
    """All that are open; lives on one event loop."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._doors: dict[str, _Door] = {}
        self._config: uvicorn.Config | None = None
        self._server_state = ServerState()

    async def open(self, agent: Agent) -> None:
        """Who comes from now on is heard, though perhaps later: see `serve`."""
        session = self._home.session(agent.name)
        try:
            listener = await asyncio.to_thread(listen, session, SOCKET)
        except OSError as error:
            raise BullpenError(
                f"cannot open {session / DIRECTORY / SOCKET}: {error.strerror}",
                hint=f"remove {session / DIRECTORY}",
                kind=Kind.UNAVAILABLE,
            ) from error
        last = self._doors.pop(agent.name, None)
        if last is not None:
            self._shut(last)
        door = self._doors[agent.name] = _Door(agent.run, {DOOR: agent.name}, listener)
        if self._config is not None:
            await self._accept(door)

    async def serve(self, config: uvicorn.Config, server_state: ServerState) -> None:
        """Answer at all doors, the present ones and those to come, as that server does."""
        if not config.loaded:
            config.load()
        self._config, self._server_state = config, server_state
        for door in list(self._doors.values()):
            await self._accept(door)

    def close(self, agent: Agent) -> None:
        """That run has ended. The door of a later one stays."""
        door = self._doors.get(agent.name)
        if door is None or door.run != agent.run:
            return
        del self._doors[agent.name]
        self._shut(door)
        unlink(self._home.session(agent.name), SOCKET)

    def leave(self) -> None:
        """The hub stops: nobody is let in any more; the sockets wait for the next hub."""
        for door in self._doors.values():
            (door.server or door.listener).close()
        self._doors.clear()

    async def _accept(self, door: _Door) -> None:
        config = self._config
        assert config is not None

        def connection() -> asyncio.Protocol:
            if len(self._inside(door)) >= MOST_CONNECTIONS:
                return _Full()
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self._server_state, app_state=door.state
            )

        loop = asyncio.get_running_loop()
        door.server = await loop.create_server(connection, sock=door.listener, backlog=BACKLOG)

    def _shut(self, door: _Door) -> None:
        """Nobody comes in, and who is in leaves: the next run of that name is another one."""
        (door.server or door.listener).close()
        for each in self._inside(door):
            each.shutdown()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, each.transport.abort)

    def _inside(self, door: _Door) -> list[Any]:
        return [c for c in self._server_state.connections if c.app_state is door.state]


class _Full(asyncio.Protocol):
    """Nobody more: the hub's descriptors are for all agents."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def listen(session: Path, name: str) -> socket.socket:
    """A new socket in place of what lies there, without a moment in which there is none."""
    beside = f".{name}.new"
    place = session / DIRECTORY
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _opened(place) as directory:
            os.fchmod(found.fileno(), 0o600)  # Linux makes the file with the mode of the socket
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=directory)
            # The path of a deep home is longer than an address may be; its descriptor's is not.
            short = DESCRIPTORS / str(directory) if DESCRIPTORS.exists() else place
            found.bind(str(short / beside))
            found.listen(BACKLOG)
            os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        found.close()
        raise
    return found


def unlink(session: Path, name: str) -> None:
    """Of a door that is shut."""
    with contextlib.suppress(OSError), _opened(session / DIRECTORY) as directory:
        os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def _opened(place: Path) -> Any:
    """Its descriptor. Not of where a link leads to: an agent may have put one there."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

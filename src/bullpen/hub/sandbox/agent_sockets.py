"""Agents' own sockets to the API: `<session>/api/hub.sock`, each with one agent's rights.

Opened by `hub/agents/terminals` before an agent's program starts, by `hub/tasks/agents` for a task
agent, and by `hub/adopt` for agents that run when the hub starts. Closed by `hub/agents/watch` at
an agent's end, and by `hub/agents/start` when a start fails. The socket puts the agent's name,
under `AGENT_SOCKET`, into the state of every request; nothing that a client sends can change it. A
sandbox mounts the directory, never the socket's file: that would be dead after a restart of the
hub, while each hub can put a new socket into the same directory.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.component.http_server import HttpServer, Listener, Listeners
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.agent import Agent

AGENT_SOCKET = "agent_socket"
DIRECTORY = "api"
SOCKET = "hub.sock"
BACKLOG = 64
MOST_CONNECTIONS = 256  # of one agent: the hub's descriptors are for all of them
DESCRIPTORS = Path("/proc/self/fd")


@dataclass(eq=False, kw_only=True)
class AgentSocket(Listener):
    """The socket of one run of an agent."""

    run: str


class AgentSockets:
    """All open sockets of agents, by the agent's name. Lives on one event loop."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._sockets: Listeners[AgentSocket] = Listeners()

    async def open(self, agent: Agent) -> None:
        """Who connects from now on is answered, though perhaps later: see `serve`."""
        session = self._home.session(agent.name)
        try:
            listener = await asyncio.to_thread(listen, session, SOCKET)
        except OSError as error:
            raise BullpenError(
                f"cannot open {session / DIRECTORY / SOCKET}: {error.strerror}",
                hint=f"remove {session / DIRECTORY}",
                kind=Kind.UNAVAILABLE,
            ) from error
        state = {AGENT_SOCKET: agent.name}
        opened = AgentSocket(listener, state, BACKLOG, MOST_CONNECTIONS, run=agent.run)
        await self._sockets.open(agent.name, opened)

    async def serve(self, server: HttpServer) -> None:
        """Let that server answer at all of them, those of now and those to come."""
        await self._sockets.serve(server)

    def close(self, agent: Agent) -> None:
        """That run has ended: its connections end, too. The socket of a later run stays."""
        opened = self._sockets.find(agent.name)
        if opened is not None and opened.run == agent.run:
            self._sockets.close(agent.name)
            unlink(self._home.session(agent.name), SOCKET)

    def leave(self) -> None:
        """The hub stops: let nobody in any more. The files stay, for the next hub."""
        self._sockets.leave()


def listen(session: Path, name: str) -> socket.socket:
    """A new socket in place of what lies there, without a moment in which there is none."""
    temporary = f".{name}.new"
    path = session / DIRECTORY
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _opened(path) as directory:
            os.fchmod(listener.fileno(), 0o600)  # Linux makes the file with the mode of the socket
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            # The path of a deep home is longer than an address may be; its descriptor's is not.
            short = DESCRIPTORS / str(directory) if DESCRIPTORS.exists() else path
            listener.bind(str(short / temporary))
            listener.listen(BACKLOG)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        listener.close()
        raise
    return listener


def unlink(session: Path, name: str) -> None:
    """Remove the file of a socket that is closed."""
    with contextlib.suppress(OSError), _opened(session / DIRECTORY) as directory:
        os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of the directory. A link is refused: an agent may have put one there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

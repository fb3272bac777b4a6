"""Ports of single agents: the part of the API below `/agents/<name>`, served at `/`.

`seats` opens one when an agent that has a port in its file is started, and closes it at its end.
Which agent a request is for is told by the listener itself, under `PORT` in the state of the
request; the guard puts the agent's name in front of the path.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from bullpen.component.ports import listen, not_ours
from bullpen.errors import Kind

PORT = "port"
LEAVE_SECONDS = 2.0  # for answers under way when an agent leaves


@dataclass
class _Port:
    number: int
    listener: socket.socket
    state: dict[str, Any] = field(default_factory=dict)  # of every request that comes in there
    server: asyncio.AbstractServer | None = None
    announcing: asyncio.Task[None] | None = None

    def close(self) -> None:
        (self.server or self.listener).close()
        if self.announcing is not None:
            self.announcing.cancel()


Announce = Callable[[str, int], Coroutine[Any, Any, None]]


class Ports:
    """All that are open; lives on one event loop. `announce` tells others of one until it is
    cancelled."""

    def __init__(self, announce: Announce | None = None) -> None:
        self._announce = announce
        self._ports: dict[str, _Port] = {}
        self._config: uvicorn.Config | None = None
        self._server_state = ServerState()

    async def open(self, name: str, number: int) -> None:
        """Bound when this returns; answered at once, or as soon as the hub answers at all."""
        found = self._ports.get(name)
        if found is not None and found.number == number:
            return
        self.close(name)
        try:
            listener = listen(number)
        except OSError as error:
            hint = f"set another port in agents/{name}.yaml"
            raise not_ours(number, error, hint, Kind.COMMAND_FAILED) from error
        port = self._ports[name] = _Port(number, listener, {PORT: name})
        if self._announce is not None:
            telling = self._announce(name, number)
            port.announcing = asyncio.create_task(telling, name=f"announce {name}")
        if self._config is not None:
            await self._accept(name, port)

    def close(self, name: str) -> None:
        """Nobody is let in any more, and who is in leaves."""
        port = self._ports.pop(name, None)
        if port is None:
            return
        port.close()
        inside = [c for c in self._server_state.connections if c.app_state is port.state]
        for each in inside:
            each.shutdown()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, each.transport.abort)

    def number(self, name: str) -> int | None:
        """The port of that agent, if it has one open."""
        port = self._ports.get(name)
        return port.number if port else None

    async def serve(self, config: uvicorn.Config, server_state: ServerState) -> None:
        """Answer at all of them, the present ones and those to come, as that server does."""
        if not config.loaded:
            config.load()
        self._config, self._server_state = config, server_state
        for name, port in list(self._ports.items()):
            await self._accept(name, port)

    def leave(self) -> None:
        """The hub stops: nobody is let in any more."""
        for port in self._ports.values():
            port.close()
        self._ports.clear()

    async def _accept(self, name: str, port: _Port) -> None:
        config = self._config
        assert config is not None

        def connection() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self._server_state, app_state=port.state
            )

        loop = asyncio.get_running_loop()
        port.server = await loop.create_server(connection, sock=port.listener)
        if self._ports.get(name) is not port:
            port.server.close()  # closed meanwhile

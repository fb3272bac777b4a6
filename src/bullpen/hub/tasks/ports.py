"""The ports of task agents: at each the API below `/agents/<name>` is served at `/`.

Called by `hub/tasks/agents`: it opens a port when an agent starts whose file names one, and closes
it when the agent leaves. An open port outlives the hub (`hub/kept_ports`). The port puts the
agent's name, under `PORT`, into the state of every request; `hub/http/guard` then puts it in front
of the path. Decides nothing about rights.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bullpen.component.http_server import HttpServer, Listener, Listeners
from bullpen.component.ports import port_taken_error
from bullpen.errors import Kind
from bullpen.hub.kept_ports import KeptPorts

PORT = "port"


@dataclass(eq=False, kw_only=True)
class AgentPort(Listener):
    """One open port. `announcing` tells other machines of it by mDNS until it is cancelled."""

    number: int
    announcing: asyncio.Task[None] | None = None

    def close(self) -> None:
        super().close()
        if self.announcing is not None:
            self.announcing.cancel()


Announce = Callable[[str, int], Coroutine[Any, Any, None]]


class AgentPorts:
    """All open ports of task agents, by the agent's name. Lives on one event loop."""

    def __init__(self, announce: Announce | None = None, kept: KeptPorts | None = None) -> None:
        self._announce = announce
        self._kept = kept or KeptPorts()
        self._ports: Listeners[AgentPort] = Listeners()

    async def open(self, name: str, number: int) -> None:
        """Bound when this returns; answered at once, or as soon as the hub answers at all."""
        if self.number(name) == number:
            return
        self.close(name)
        try:
            listener = self._kept.listen(number)
        except OSError as error:
            hint = f"set another port in agents/{name}.yaml"
            raise port_taken_error(number, error, hint, Kind.COMMAND_FAILED) from error
        port = AgentPort(listener, {PORT: name}, number=number)
        if self._announce is not None:
            work = self._announce(name, number)
            port.announcing = asyncio.create_task(work, name=f"announce {name}")
        await self._ports.open(name, port)

    def close(self, name: str) -> None:
        """Let nobody in any more, and end the connections that are open."""
        number = self.number(name)
        self._ports.close(name)
        if number is not None:
            self._kept.release(number)

    def number(self, name: str) -> int | None:
        """The port of that agent, if it has one open."""
        port = self._ports.find(name)
        return port.number if port else None

    async def serve(self, server: HttpServer) -> None:
        """Let that server answer at all of them, those of now and those to come."""
        await self._ports.serve(server)

    def leave(self) -> None:
        """The hub stops: let nobody in any more. The next hub does."""
        self._ports.leave()

"""Who calls a tool, and with which request. The credential decides; no tool takes it as an
argument."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import Context

from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.parts import Hub

REQUEST = "bullpen-request"  # the header by which a call that is sent twice is known


@dataclass(frozen=True)
class Caller:
    """The agent that calls. `request` is the same when the same call is sent again."""

    live: LiveAgent
    request: str

    @property
    def name(self) -> str:
        return self.live.agent.name

    def key(self, what: str, digits: int) -> str:
        """Hexadecimal digits that are the same for the same request."""
        text = f"{what}:{self.name}:{self.live.agent.run}:{self.request}"
        return hashlib.sha256(text.encode()).hexdigest()[:digits]


def caller_of(hub: Hub, context: "Context[Any]") -> Caller:
    """From the request that the endpoint let in."""
    request: Any = context.request_context.request
    name: str = request.scope["state"]["actor"].agent
    sent = request.headers.get(REQUEST, "")[:200]
    return Caller(hub.registry.get(name), sent or secrets.token_hex(16))

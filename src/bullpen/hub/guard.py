"""Who may come in: the Host, the origin, the size of the body, the credential.

A plain ASGI layer around the application; what it shares with other components' is
`component/guard.py`'s. Which actor may do what is each route's own dependency.
"""

import re
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.component.answers import (
    RefusedError,
    answer_error,
    answer_failure,
    common_headers,
    error_body,
    error_response,
)
from bullpen.component.guard import BODY_BYTES, bearer, check_host, check_origin, guarded
from bullpen.errors import BullpenError, Kind
from bullpen.hub import tokens
from bullpen.hub.doors import DOOR
from bullpen.hub.ports import PORT
from bullpen.hub.registry import Registry

__all__ = [
    "ANONYMOUS",
    "BODY_BYTES",
    "OWNER",
    "Actor",
    "Guard",
    "RefusedError",
    "actor_of",
    "answer_error",
    "answer_failure",
    "common_headers",
    "error_body",
    "error_response",
    "owner_only",
    "owner_or_self",
]

# What anybody on this machine may read; the routes themselves say less to nobody in particular.
OPEN = re.compile(r"/status|/agents/[^/]+/status")


@dataclass(frozen=True)
class Actor:
    """Who asks: the owner, the agent of that name, or somebody who did not say."""

    agent: str = ""
    is_anonymous: bool = False

    @property
    def is_owner(self) -> bool:
        return not self.agent and not self.is_anonymous


OWNER = Actor()
ANONYMOUS = Actor(is_anonymous=True)


class Guard:
    """The layer. `own_socket` is the owner's; a door says itself whose it is."""

    def __init__(self, app: ASGIApp, registry: Registry, owner_token: str, own_socket: str) -> None:
        self.app = app
        self.registry = registry
        self.owner_token = owner_token
        self.own_socket = own_socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        _lead_to_agent(scope)

        def admit(headers: dict[bytes, str]) -> None:
            self._check_host(scope, headers)
            check_origin(headers)
            scope["state"]["actor"] = self._identify(scope, headers)

        await guarded(self.app, scope, receive, send, admit, "the hub")

    def _is_tcp(self, scope: Scope) -> bool:
        server = scope.get("server")
        return server is None or server[1] is not None

    def _check_host(self, scope: Scope, headers: dict[bytes, str]) -> None:
        if self._is_tcp(scope):
            check_host(headers)

    def _identify(self, scope: Scope, headers: dict[bytes, str]) -> Actor:
        given = headers.get(b"authorization")
        door = scope["state"].get(DOOR)
        if door is not None:
            # Whatever else lies in a sandbox is stolen: it is not even said to be valid.
            if given is not None and self._find(given) != Actor(door):
                raise RefusedError(403, "forbidden", f"this socket is for {door} alone")
            return Actor(door)
        if given is not None:
            actor = self._find(given)
            if actor is None:
                raise RefusedError(401, "unauthorized", "no such token")
            return actor
        if self._is_tcp(scope):
            if _is_open(scope):
                return ANONYMOUS
            raise RefusedError(401, "unauthorized", "a token is needed: Authorization: Bearer")
        if scope["server"][0] == self.own_socket:
            return OWNER
        raise RefusedError(401, "unauthorized", "this socket belongs to nobody")

    def _find(self, given: str) -> Actor | None:
        """Whose token the header holds."""
        token = bearer(given)
        if token is None:
            return None
        if tokens.is_owner(token, self.owner_token):
            return OWNER
        agent = tokens.find_agent(token, (live.agent for live in self.registry))
        return None if agent is None else Actor(agent.name)


def _lead_to_agent(scope: Scope) -> None:
    """At the port of one agent everything is below that agent."""
    name = scope["state"].get(PORT)
    if name is not None:
        scope["path"] = f"/agents/{name}{scope['path']}"
        scope["raw_path"] = f"/agents/{name}".encode() + scope.get("raw_path", b"")


def _is_open(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and OPEN.fullmatch(scope["path"]) is not None
    )


# ── what routes depend on ────────────────────────────────────────────────────


def actor_of(request: HTTPConnection) -> Actor:
    """Who asks."""
    found: Actor = request.scope["state"]["actor"]
    return found


def owner_only(request: HTTPConnection) -> None:
    """For what no agent may do."""
    if not actor_of(request).is_owner:
        raise BullpenError("only the owner may do that", kind=Kind.DENIED)


def owner_or_self(request: HTTPConnection) -> None:
    """For what an agent may do to itself."""
    actor = actor_of(request)
    if not actor.is_owner and request.path_params.get("name") != actor.agent:
        who = actor.agent or "nobody in particular"
        raise BullpenError(f"{who} may not do that to another agent", kind=Kind.DENIED)

"""Who may come in: the Host, the origin, the size of the body, the credential.

A plain ASGI layer around the application; what it shares with other components' is
`component/guard.py`'s. Which actor may do what is each route's own dependency.
"""

import logging
import re
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.component.answers import (
    RefusedError,
    answer_error,
    answer_failure,
    error_response,
)
from bullpen.component.budget import RequestBudget
from bullpen.component.guard import (
    BODY_BYTES,
    NOBODY_REQUESTS,
    OWNER_BYTES,
    OWNER_REQUESTS,
    bearer,
    check_host,
    check_origin,
    guarded,
)
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents import tokens
from bullpen.hub.agents.registry import Registry
from bullpen.hub.directors import Directors
from bullpen.hub.fleet import FLEET_CALLER
from bullpen.hub.http import agents_ways
from bullpen.hub.sandbox.agent_sockets import AGENT_SOCKET
from bullpen.hub.tasks.ports import PORT

log = logging.getLogger("bullpen.hub")

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
    "error_response",
    "note_refusal",
    "owner_only",
    "owner_or_director",
    "owner_or_self",
]

# Of one agent at once. A stream is a request, too.
AGENT_REQUESTS = 256
AGENT_BYTES = 32 << 20

# What anybody on this machine may read, at the hub's port and at an agent's own; the routes
# themselves say less to nobody in particular. Nothing below `/agents`: which names there are is
# nobody's business.
OPEN = re.compile("/status")

# All that a director may ask for. Of tasks, sessions and components it sees those of its own: that
# is each route's affair. What is not here is refused before any route is reached.
DIRECTORS = re.compile(
    r"GET /(status|tasks|task/[^/]+(/events)?|history(/[^/]+)?|requests/[^/]+|components)"
    r"|POST /(tasks|agents/[^/]+/task|task/[^/]+/(cancel|continue|end)|components)"
    r"|DELETE /components/[^/]+"
    r"|(GET|PUT|DELETE) /escalations/[^/]+"
)


@dataclass(frozen=True)
class Actor:
    """Who asks: the owner, the agent or the director of that name, or somebody who did not say. The
    owner of one machine of a fleet is that of all."""

    agent: str = ""  # of another machine: `host/agent`
    director: str = ""
    is_anonymous: bool = False
    host: str = ""  # the machine, if it is another one

    @property
    def is_owner(self) -> bool:
        return not self.agent and not self.director and not self.is_anonymous


OWNER = Actor()
ANONYMOUS = Actor(is_anonymous=True)


class Guard:
    """The layer. `own_socket` is the owner's; an agent's socket says itself whose it is."""

    def __init__(
        self,
        app: ASGIApp,
        registry: Registry,
        directors: Directors,
        owner_token: str,
        own_socket: str,
    ) -> None:
        self.app = app
        self.registry = registry
        self.directors = directors
        self.owner_token = owner_token
        self.own_socket = own_socket
        self._budgets = {
            OWNER: RequestBudget(OWNER_REQUESTS, OWNER_BYTES),
            ANONYMOUS: RequestBudget(NOBODY_REQUESTS, 0),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        is_open = _is_open(scope)
        _lead_to_agent(scope)

        def admit(headers: dict[bytes, str]) -> RequestBudget:
            self._check_host(scope, headers)
            check_origin(headers)
            actor = scope["state"]["actor"] = self._identify(scope, headers, is_open)
            if actor.director:
                _check_director(scope, actor.director)
            return self._budget_of(actor)

        await guarded(self.app, scope, receive, send, admit, "the hub")

    def _budget_of(self, actor: Actor) -> RequestBudget:
        if actor not in self._budgets:
            self._budgets[actor] = RequestBudget(AGENT_REQUESTS, AGENT_BYTES)
        return self._budgets[actor]

    def _is_tcp(self, scope: Scope) -> bool:
        server = scope.get("server")
        return server is None or server[1] is not None

    def _check_host(self, scope: Scope, headers: dict[bytes, str]) -> None:
        if self._is_tcp(scope):
            check_host(headers)

    def _identify(self, scope: Scope, headers: dict[bytes, str], is_open: bool) -> Actor:
        caller = scope["state"].get(FLEET_CALLER)
        if caller is not None:  # its hub has signed who it is; `fleet/peers` has checked that
            host, name = caller
            return Actor(f"{host}/{name}" if name else "", host=host)
        given = headers.get(b"authorization")
        agent = scope["state"].get(AGENT_SOCKET)
        if agent is not None:
            # Whatever else lies in a sandbox is stolen: it is not even said to be valid.
            if given is not None and self._find(given) != Actor(agent):
                note_refusal(scope, Actor(agent))
                raise RefusedError(403, "forbidden", f"this socket is for {agent} alone")
            return Actor(agent)
        if given is not None:
            actor = self._find(given)
            if actor is None:
                raise RefusedError(401, "unauthorized", "no such token")
            return actor
        if self._is_tcp(scope):
            if is_open:
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
        if agent is not None:
            return Actor(agent.name)
        director = self.directors.find(token)
        return Actor(director=director) if director else None


def _lead_to_agent(scope: Scope) -> None:
    """At the port of one agent everything is below that agent."""
    name = scope["state"].get(PORT)
    if name is not None:
        scope["path"] = f"/agents/{name}{scope['path']}"
        scope["raw_path"] = f"/agents/{name}".encode() + scope.get("raw_path", b"")


def _check_director(scope: Scope, director: str) -> None:
    route = f"{scope.get('method', '')} {scope['path']}"
    if scope["type"] != "http" or DIRECTORS.fullmatch(route) is None:
        log.warning("a request was refused", extra={"director": director, "asked": route[:200]})
        raise RefusedError(403, "forbidden", "a director may give tasks and look at its own")


def _is_open(scope: Scope) -> bool:
    is_look = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_look and OPEN.fullmatch(scope["path"]) is not None


# ── what routes depend on ────────────────────────────────────────────────────
# Coroutines, though they wait for nothing: FastAPI runs plain functions in a thread each time.


def actor_of(request: HTTPConnection) -> Actor:
    """Who asks."""
    actor: Actor = request.scope["state"]["actor"]
    return actor


async def owner_only(request: HTTPConnection) -> None:
    """For what no agent may do."""
    actor = actor_of(request)
    if not actor.is_owner:
        note_refusal(request.scope, actor)
        raise BullpenError(
            "only the owner may do that", hint=_own_way(request, actor), kind=Kind.DENIED
        )


async def owner_or_director(request: HTTPConnection) -> None:
    """For what directors do as well; each route sees to it that one gets at its own alone."""
    if not actor_of(request).director:
        await owner_only(request)


async def director_only(request: HTTPConnection) -> None:
    """For what a director does in its own name."""
    actor = actor_of(request)
    if not actor.director:
        note_refusal(request.scope, actor)
        raise BullpenError("only a director may do that, with its own token", kind=Kind.DENIED)


async def agent_itself(request: HTTPConnection) -> None:
    """For what acts as an agent: that agent alone, by its own credential."""
    actor, name = actor_of(request), str(request.path_params.get("name"))
    if actor.agent != name:
        who = actor.agent or "the owner"
        note_refusal(request.scope, actor)
        raise BullpenError(
            f"{who} cannot use the tools of {name}: they act as that agent alone",
            hint="use that agent's own socket or token",
            kind=Kind.DENIED,
        )


async def owner_or_self(request: HTTPConnection) -> None:
    """For what an agent may do to itself."""
    actor = actor_of(request)
    if not actor.is_owner and request.path_params.get("name") != actor.agent:
        who = actor.agent or "nobody in particular"
        note_refusal(request.scope, actor)
        raise BullpenError(
            f"{who} may not do that to another agent",
            hint=_own_way(request, actor),
            kind=Kind.DENIED,
        )


def _own_way(request: HTTPConnection, actor: Actor) -> str:
    """What an agent does instead of what it asked for."""
    if not actor.agent:
        return ""
    route = f"{request.scope.get('method', '')} {request.scope['route'].path}"
    return agents_ways.TOOLS.get(route, agents_ways.ASK_OWNER)


def note_refusal(scope: Scope, actor: Actor) -> None:
    """For the person: what somebody tried that is not its to do."""
    extra = {"agent": actor.agent, "method": scope.get("method", ""), "path": scope["path"]}
    log.warning("a request was refused", extra=extra)

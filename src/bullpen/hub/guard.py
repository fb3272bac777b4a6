"""Who may come in: the Host, the origin, the size of the body, the credential.

A plain ASGI layer around the application, and the boundary where every error becomes the one
format of answers. Which actor may do what is each route's own dependency.
"""

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.hub import tokens
from bullpen.hub.registry import Registry

log = logging.getLogger("bullpen.http")

BODY_BYTES = 8 << 20
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

# kind -> status and name of the error
ANSWERS = {
    Kind.INVALID: (400, "validation_error"),
    Kind.NOT_FOUND: (404, "not_found"),
    Kind.CONFLICT: (409, "conflict"),
    Kind.DENIED: (403, "forbidden"),
    Kind.UNAVAILABLE: (503, "unavailable"),
    Kind.UNSUPPORTED: (422, "unsupported"),
    Kind.COMMAND_FAILED: (422, "command_failed"),
}


@dataclass(frozen=True)
class Actor:
    """Who asks: the owner, or the agent of that name."""

    agent: str = ""

    @property
    def is_owner(self) -> bool:
        return not self.agent


OWNER = Actor()


class RefusedError(HTTPException):
    """An answer that ends the request; also from inside the reading of a body."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(status, message)
        self.error = error


def error_response(
    status: int, error: str, message: str, details: dict[str, Any] | None = None
) -> JSONResponse:
    """The one format of errors."""
    body = {"error": error, "message": message, "details": details or {}}
    return JSONResponse(body, status, {"WWW-Authenticate": "Bearer"} if status == 401 else None)


def answer_error(error: BullpenError) -> JSONResponse:
    """The answer for one of our own errors; the client raises the same again from it."""
    status, name = ANSWERS[error.kind]
    details = {**error.details, "kind": error.kind.value, "hint": error.hint}
    if status == 503:
        details["retryable"] = True
    return error_response(status, name, error.message, details)


class Guard:
    """The layer. `agent_sockets` names the agent that a socket of its own belongs to."""

    def __init__(
        self,
        app: ASGIApp,
        registry: Registry,
        owner_token: str,
        own_socket: str,
        agent_sockets: dict[str, str],
    ) -> None:
        self.app = app
        self.registry = registry
        self.owner_token = owner_token
        self.own_socket = own_socket
        self.agent_sockets = agent_sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        answer = _Answer(send)
        try:
            self._check_host(scope, headers)
            _check_origin(headers)
            scope.setdefault("state", {})["actor"] = self._identify(scope, headers)
            await self.app(scope, _capped(receive, headers), answer)
        except RefusedError as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 4000 + error.status_code})
                return
            refusal = error_response(error.status_code, error.error, error.detail)
            await answer.instead(refusal, scope, receive)
        except Exception as error:
            log.exception("a request failed", extra={"path": scope.get("path", "")})
            if answer.started or scope["type"] == "websocket":
                raise
            message = f"the hub failed ({type(error).__name__}); its log says where"
            failed = error_response(500, "internal_error", message, {"retryable": True})
            await answer.instead(failed, scope, receive)

    def _is_tcp(self, scope: Scope) -> bool:
        server = scope.get("server")
        return server is None or server[1] is not None

    def _check_host(self, scope: Scope, headers: dict[bytes, str]) -> None:
        # A page of a foreign site reaches a loopback port under that site's own name.
        host = headers.get(b"host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._is_tcp(scope) and name.lower() not in LOOPBACK_NAMES:
            raise RefusedError(403, "forbidden", f"not served under the name {host!r}")

    def _identify(self, scope: Scope, headers: dict[bytes, str]) -> Actor:
        given = headers.get(b"authorization")
        if given is not None:
            return self._by_token(given)
        if self._is_tcp(scope):
            raise RefusedError(401, "unauthorized", "a token is needed: Authorization: Bearer")
        path = scope["server"][0]
        if path in self.agent_sockets:
            return Actor(self.agent_sockets[path])
        if path == self.own_socket:
            return OWNER
        raise RefusedError(401, "unauthorized", "this socket belongs to nobody")

    def _by_token(self, given: str) -> Actor:
        scheme, _, token = given.partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            if tokens.is_owner(token, self.owner_token):
                return OWNER
            agent = tokens.find_agent(token, (live.agent for live in self.registry))
            if agent is not None:
                return Actor(agent.name)
        raise RefusedError(401, "unauthorized", "no such token")


class _Answer:
    """`send`, which adds our version to what goes out and knows whether anything has."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message["headers"] = [*message["headers"], (b"bullpen-version", __version__.encode())]
        await self.send(message)

    async def instead(self, response: JSONResponse, scope: Scope, receive: Receive) -> None:
        """Another answer, if none is under way."""
        if not self.started:
            await response(scope, receive, self)


def _check_origin(headers: dict[bytes, str]) -> None:
    # Browsers send it with everything a page of another site may cause; our own page's is
    # its host.
    origin = headers.get(b"origin")
    if origin is not None and origin.partition("://")[2] != headers.get(b"host"):
        raise RefusedError(403, "forbidden", "requests of other sites are refused")
    if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RefusedError(403, "forbidden", "requests of other sites are refused")


def _capped(receive: Receive, headers: dict[bytes, str]) -> Receive:
    """The body, refused once it is more than it may be."""
    too_large = RefusedError(413, "too_large", f"a body has at most {BODY_BYTES} bytes")
    length = headers.get(b"content-length", "0")
    if length.isdigit() and int(length) > BODY_BYTES:
        raise too_large
    taken = 0

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b"")) if message["type"] == "http.request" else 0
        if taken > BODY_BYTES:
            raise too_large
        return message

    return receiving


# ── what routes depend on ────────────────────────────────────────────────────


def actor_of(request: HTTPConnection) -> Actor:
    """Who asks."""
    found: Actor = request.scope["state"]["actor"]
    return found


def owner_only(request: Request) -> None:
    """For what no agent may do."""
    if not actor_of(request).is_owner:
        raise BullpenError("only the owner may do that", kind=Kind.DENIED)


def owner_or_self(request: Request) -> None:
    """For what an agent may do to itself."""
    actor = actor_of(request)
    if not actor.is_owner and request.path_params.get("name") != actor.agent:
        raise BullpenError(f"{actor.agent} may not do that to another agent", kind=Kind.DENIED)

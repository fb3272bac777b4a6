"""Who may come in: the Host, the origin, the size of the body, the credential.

A plain ASGI layer around the application, and the boundary where every error becomes the one
format of answers. Which actor may do what is each route's own dependency.
"""

import json
import logging
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.hub import tokens
from bullpen.hub.doors import DOOR
from bullpen.hub.registry import Registry

log = logging.getLogger("bullpen.http")

BODY_BYTES = 8 << 20
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A request with two of them could mean one thing to us and another to whoever looked before.
SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"content-length", b"sec-fetch-site")
RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})

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


def error_body(status: int, error: str, message: str, details: dict[str, Any]) -> bytes:
    """The one format of errors. ASCII: half a surrogate in a message can be sent like that."""
    details = {"retryable": status in RETRYABLE, **details}
    body = {"error": error, "message": message, "details": details}
    return json.dumps(body, default=str).encode()


def error_response(
    status: int, error: str, message: str, details: dict[str, Any] | None = None
) -> Response:
    """The same as an answer."""
    return Response(
        error_body(status, error, message, details or {}),
        status,
        {"WWW-Authenticate": "Bearer"} if status == 401 else None,
        "application/json",
    )


def answer_error(error: BullpenError) -> Response:
    """The answer for one of our own errors; the client raises the same again from it."""
    status, name = ANSWERS[error.kind]
    details = {**error.details, "kind": error.kind.value, "hint": error.hint}
    return error_response(status, name, error.message, details)


def answer_failure(error: Exception) -> Response:
    """The answer for what should not happen."""
    message = f"the hub failed ({type(error).__name__}); its log says where"
    return error_response(500, "internal_error", message)


class Guard:
    """The layer. `own_socket` is the owner's; a door says itself whose it is."""

    def __init__(self, app: ASGIApp, registry: Registry, owner_token: str, own_socket: str) -> None:
        self.app = app
        self.registry = registry
        self.owner_token = owner_token
        self.own_socket = own_socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        scope.setdefault("state", {})
        try:
            headers = _single_headers(scope)
            self._check_host(scope, headers)
            _check_origin(headers)
            scope["state"]["actor"] = self._identify(scope, headers)
            await self.app(scope, _capped(receive, headers), answer)
        except RefusedError as error:
            if not answer.is_begun:
                refusal = error_response(error.status_code, error.error, error.detail)
                await refusal(scope, receive, answer)
        except Exception as error:
            log.exception("a request failed", extra={"path": scope.get("path", "")})
            if not answer.is_begun:
                await answer_failure(error)(scope, receive, answer)
            elif not answer.is_over:
                raise  # the server cuts the connection: half an answer must not look whole

    def _is_tcp(self, scope: Scope) -> bool:
        server = scope.get("server")
        return server is None or server[1] is not None

    def _check_host(self, scope: Scope, headers: dict[bytes, str]) -> None:
        # A page of a foreign site reaches a loopback port under that site's own name.
        host = headers.get(b"host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._is_tcp(scope) and name.lower() not in LOOPBACK_NAMES:
            raise RefusedError(403, "forbidden", f"not served under the name {host[:80]!r}")

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
            raise RefusedError(401, "unauthorized", "a token is needed: Authorization: Bearer")
        if scope["server"][0] == self.own_socket:
            return OWNER
        raise RefusedError(401, "unauthorized", "this socket belongs to nobody")

    def _find(self, given: str) -> Actor | None:
        """Whose token the header holds."""
        scheme, _, token = given.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        if tokens.is_owner(token, self.owner_token):
            return OWNER
        agent = tokens.find_agent(token, (live.agent for live in self.registry))
        return None if agent is None else Actor(agent.name)


class _Answer:
    """`send`, which adds to what goes out and knows whether anything has."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.is_begun = self.is_over = False

    async def __call__(self, message: Message) -> None:
        self.is_begun = True
        self.is_over = message["type"].endswith("body") and not message.get("more_body")
        if message["type"].endswith("http.response.start"):  # also of a refused WebSocket
            message["headers"] = [*message["headers"], *common_headers(message["headers"])]
        await self.send(message)


def common_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What every answer has, unless it says otherwise itself."""
    given = {name.lower() for name, _ in headers}
    common = [
        (b"bullpen-version", __version__.encode()),
        (b"date", formatdate(time.time(), usegmt=True).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    return [(name, value) for name, value in common if name not in given]


def _single_headers(scope: Scope) -> dict[bytes, str]:
    headers: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in headers and name in SINGLE_HEADERS:
            raise RefusedError(400, "validation_error", f"two headers {name.decode('latin-1')!r}")
        headers[name] = value.decode("latin-1")
    return headers


def _check_origin(headers: dict[bytes, str]) -> None:
    # Browsers send it with everything a page of another site may cause; our own page's is
    # its host.
    origin = headers.get(b"origin")
    if origin is not None and origin != f"http://{headers.get(b'host')}":
        raise RefusedError(403, "forbidden", "requests of other sites are refused")
    if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RefusedError(403, "forbidden", "requests of other sites are refused")


def _capped(receive: Receive, headers: dict[bytes, str]) -> Receive:
    """The body, refused once it is more than it may be."""
    too_large = RefusedError(413, "too_large", f"a body has at most {BODY_BYTES} bytes")
    length = headers.get(b"content-length", "0")
    if not length.isdecimal() or len(length) > 18 or int(length) > BODY_BYTES:
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


def owner_only(request: HTTPConnection) -> None:
    """For what no agent may do."""
    if not actor_of(request).is_owner:
        raise BullpenError("only the owner may do that", kind=Kind.DENIED)


def owner_or_self(request: HTTPConnection) -> None:
    """For what an agent may do to itself."""
    actor = actor_of(request)
    if not actor.is_owner and request.path_params.get("name") != actor.agent:
        raise BullpenError(f"{actor.agent} may not do that to another agent", kind=Kind.DENIED)

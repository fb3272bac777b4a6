"""The checks that every request to a server of ours passes: headers, Host, origin, size, token.

`guarded` and the checks are called by `hub/http/guard` and by `OwnerGuard`, which is the layer of
directors, views and bridges. Refuses by `RefusedError`. Knows no routes but `/status`.
"""

import contextlib
import hmac
import logging
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen.component.answers import RefusedError, answer_failure, answer_refused, common_headers
from bullpen.component.budget import Body, RequestBudget

log = logging.getLogger("bullpen.http")

OWNER_REQUESTS = 4096
OWNER_BYTES = 256 << 20
NOBODY_REQUESTS = 256
# Of all who post to open paths. A route there lets fewer in before it knows them, so that those who
# have no business there leave room (`directors/forge/webhook`; a test compares them).
SENDER_REQUESTS = 48
SENDER_BYTES = 96 << 20
SENDER_BODY_BYTES = 2 << 20  # an issue with two long texts has less; the route refuses more

BODY_BYTES = 8 << 20
OWNERS_SOCKET = "owners_socket"  # in the state of requests by the socket in the home
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A request with two of them could mean one thing to us and another to whoever looked before.
SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"content-length", b"sec-fetch-site")


class Answer:
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


def single_headers(scope: Scope) -> dict[bytes, str]:
    """The headers by name; those that must not come twice did not."""
    headers: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in headers and name in SINGLE_HEADERS:
            raise RefusedError(400, "validation_error", f"two headers {name.decode('latin-1')!r}")
        headers[name] = value.decode("latin-1")
    return headers


def is_loopback_name(host: str) -> bool:
    """Whether a Host names this machine's loopback, with a port or without."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.lower() in LOOPBACK_NAMES


def check_host(headers: dict[bytes, str]) -> None:
    """A page of a foreign site reaches a loopback port under that site's own name."""
    host = headers.get(b"host", "")
    if not is_loopback_name(host):
        raise RefusedError(403, "forbidden", f"not served under the name {host[:80]!r}")


def check_origin(headers: dict[bytes, str]) -> None:
    """Browsers send it with everything a page of another site may cause; our own page's is
    its host."""
    origin = headers.get(b"origin")
    if origin is not None and origin != f"http://{headers.get(b'host')}":
        raise RefusedError(403, "forbidden", "requests of other sites are refused")
    if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RefusedError(403, "forbidden", "requests of other sites are refused")


def bearer(given: str) -> str | None:
    """The token in the header, if there is one."""
    scheme, _, token = given.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def capped(receive: Receive, headers: dict[bytes, str]) -> Receive:
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


async def guarded(
    app: ASGIApp,
    scope: Scope,
    receive: Receive,
    send: Send,
    admit: Callable[[dict[bytes, str]], RequestBudget],
    who: str,
    reserved: int = BODY_BYTES,
) -> None:
    """Serve one request that `admit` lets in: it looks at the headers, and says whose budget the
    request uses or raises RefusedError. No body is read before that. The boundary where every error
    becomes the one format of answers. `reserved`: of the budget, for a body of unknown length."""
    answer = Answer(send)
    try:
        headers = single_headers(scope)
        budget = admit(headers)
        body = Body(receive, headers, budget, reserved)
        with budget.one_request(), contextlib.closing(body):
            await app(scope, capped(body, headers), answer)
    except RefusedError as error:
        if not answer.is_begun:
            await answer_refused(error)(scope, receive, answer)
    except ClientDisconnect:
        log.debug("a client left in the middle of its request")
    except Exception as error:
        log.exception("a request failed", extra={"path": scope.get("path", "")})
        if not answer.is_begun:
            await answer_failure(error, who)(scope, receive, answer)
        elif not answer.is_over:
            raise  # the server cuts the connection: half an answer must not look whole


class OwnerGuard:
    """The ASGI layer of a component: the owner is who has the home's token, or comes by the socket
    in the home. What is posted to `open_paths` comes from others, under any name of a host: the
    route itself finds out who sends it."""

    def __init__(
        self, app: ASGIApp, token: str, name: str, open_paths: Collection[str] = ()
    ) -> None:
        self.app = app
        self.token = token
        self.name = name
        self._owner = RequestBudget(OWNER_REQUESTS, OWNER_BYTES)
        self._nobody = RequestBudget(NOBODY_REQUESTS, 0)
        self._sender = RequestBudget(SENDER_REQUESTS, SENDER_BYTES)
        self._open = {("http", "POST", path) for path in open_paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        is_open = (scope["type"], scope.get("method"), scope["path"]) in self._open

        def admit(headers: dict[bytes, str]) -> RequestBudget:
            if is_open:
                check_origin(headers)
                scope["state"]["is_owner"] = False
                return self._sender
            check_host(headers)
            check_origin(headers)
            is_owner = scope["state"]["is_owner"] = self._is_owner(scope, headers)
            return self._owner if is_owner else self._nobody

        reserved = SENDER_BODY_BYTES if is_open else BODY_BYTES
        await guarded(self.app, scope, receive, send, admit, self.name, reserved)

    def _is_owner(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        given = headers.get(b"authorization")
        if given is not None:
            token = bearer(given) or ""
            if hmac.compare_digest(token.encode("latin-1", "replace"), self.token.encode()):
                return True
            raise RefusedError(401, "unauthorized", "no such token")
        if scope["state"].get(OWNERS_SOCKET):
            return True
        if scope["path"] == "/status" and scope.get("method") in ("GET", "HEAD"):
            return False
        raise RefusedError(401, "unauthorized", "a token is needed: Authorization: Bearer")

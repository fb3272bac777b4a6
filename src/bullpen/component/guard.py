"""What every request to one of our servers has to pass: its headers, Host, origin, size.

The parts that the hub and the other components share; each has its own layer that calls them
and says whose credential it was. Refuses by `RefusedError`, and knows no routes.
"""

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bullpen.component.answers import RefusedError, answer_failure, common_headers

log = logging.getLogger("bullpen.http")

BODY_BYTES = 8 << 20
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
    admit: Callable[[dict[bytes, str]], None],
    who: str,
) -> None:
    """Serve one request that `admit` lets in: it looks at the headers and raises RefusedError
    otherwise. The boundary where every error becomes the one format of answers."""
    answer = Answer(send)
    try:
        headers = single_headers(scope)
        admit(headers)
        await app(scope, capped(receive, headers), answer)
    except RefusedError as error:
        if not answer.is_begun:
            await error.answer()(scope, receive, answer)
    except Exception as error:
        log.exception("a request failed", extra={"path": scope.get("path", "")})
        if not answer.is_begun:
            await answer_failure(error, who)(scope, receive, answer)
        elif not answer.is_over:
            raise  # the server cuts the connection: half an answer must not look whole

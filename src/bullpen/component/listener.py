"""How a component listens: the layer that lets requests in, the server, the connection.

The checks are the hub's own; there is one credential, the home's. What a request then means is
the business of `server`.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Iterator

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bullpen.component.answers import RefusedError, error_body
from bullpen.component.guard import bearer, check_host, check_origin, guarded

LEAVE_SECONDS = 2  # for requests under way


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How it is served."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",  # at info the server logs queries
        access_log=False,
        server_header=False,
        date_header=False,  # the layer's own is there already
        timeout_graceful_shutdown=LEAVE_SECONDS,
    )


class OwnerGuard:
    """The layer around it: the same checks as the hub's, and one credential."""

    def __init__(self, app: ASGIApp, token: str, name: str) -> None:
        self.app = app
        self.token = token
        self.name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})

        def admit(headers: dict[bytes, str]) -> None:
            check_host(headers)
            check_origin(headers)
            scope["state"]["is_owner"] = self._is_owner(scope, headers)

        await guarded(self.app, scope, receive, send, admit, self.name)

    def _is_owner(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        given = headers.get(b"authorization")
        if given is not None:
            token = bearer(given) or ""
            if hmac.compare_digest(token.encode("latin-1", "replace"), self.token.encode()):
                return True
            raise RefusedError(401, "unauthorized", "no such token")
        if scope["method"] == "GET" and scope["path"] == "/status":
            return False
        raise RefusedError(401, "unauthorized", "a token is needed: Authorization: Bearer")


class Server(uvicorn.Server):
    """Without its ten wake-ups a second, and without signal handlers: those are ours."""

    def __init__(self, config: uvicorn.Config, over: asyncio.Event) -> None:
        super().__init__(config)
        self.over = over

    async def main_loop(self) -> None:
        await self.over.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Connection(H11Protocol):
    """Its parser refuses heads that are too long; what is no HTTP is answered in our format."""

    def send_400_response(self, msg: str) -> None:
        body = error_body(400, "validation_error", msg, {})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

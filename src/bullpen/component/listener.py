"""How a component listens: the layer that lets requests in, the server, the connection.

The checks are the hub's own; there is one credential, the home's. What a request then means is
the business of `server`.
"""

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Iterator

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bullpen.component.answers import RefusedError, answer_failure, error_body
from bullpen.component.guard import (
    Answer,
    bearer,
    capped,
    check_host,
    check_origin,
    single_headers,
)

log = logging.getLogger("bullpen.component")

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
        answer = Answer(send)
        scope.setdefault("state", {})
        try:
            headers = single_headers(scope)
            check_host(headers)
            check_origin(headers)
            scope["state"]["is_owner"] = self._is_owner(scope, headers)
            await self.app(scope, capped(receive, headers), answer)
        except RefusedError as error:
            if not answer.is_begun:
                await error.answer()(scope, receive, answer)
        except Exception as error:
            log.exception("a request failed", extra={"path": scope.get("path", "")})
            if not answer.is_begun:
                await answer_failure(error, self.name)(scope, receive, answer)
            elif not answer.is_over:
                raise  # the server cuts the connection: half an answer must not look whole

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

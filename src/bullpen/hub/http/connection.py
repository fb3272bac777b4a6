"""One connection before there is a request: what its head may be, and errors in our format.

The server's own protocol with what it lacks: it reads a head of any length for ever, and
answers what is not HTTP in a format of its own. Used for every listener of the hub.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from bullpen.hub.guard import common_headers, error_body

HEAD_BYTES = 1 << 16
HEADERS = 100
HEAD_SECONDS = 20.0
# Limits of the library that reads the head of a WebSocket once more (websockets 17): what
# exceeds them ends there in an assertion.
LINE_BYTES = 8000

Problem = tuple[int, str, str]
MALFORMED: Problem = (400, "validation_error", "this is not an HTTP request")
TOO_LARGE: Problem = (431, "too_large", f"the head of a request has at most {HEAD_BYTES} bytes")
TOO_SLOW: Problem = (408, "timeout", f"the head of a request took longer than {HEAD_SECONDS:g} s")
NO_HANDSHAKE: Problem = (400, "validation_error", "this is not the handshake of a WebSocket")


class SocketConnection(WebSocketsSansIOProtocol):
    """Of a WebSocket. The server (uvicorn 0.54) takes a refusal for an answer that is missing,
    and logs an error, unless the connection was closed faster than it looked."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


class Connection(HttpToolsProtocol):
    """Of HTTP."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._problem = MALFORMED
        self._is_in_head = True
        self._ends = 0  # of heads and of bodies that were read
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head and self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)
        ends = self._ends
        super().data_received(data)
        if self._is_in_head and self._ends == ends:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._refuse(TOO_LARGE)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # what follows a body is of no use to anybody
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._ends += 1
        self._head_bytes = 0
        self._forget_deadline()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES or len(self.headers) > HEADERS:
            self._problem = TOO_LARGE
            raise ValueError  # ends the parsing, and leads to `send_400_response`
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._ends += 1
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        lines = [self.url, *(name + value for name, value in self.headers)]
        headers = dict(self.headers)
        if max(map(len, lines)) > LINE_BYTES:
            self._refuse(TOO_LARGE)
        elif (
            self.scope["method"] != "GET"
            or not self.url.isascii()
            or headers.get(b"sec-websocket-version") != b"13"
            or len(headers.get(b"sec-websocket-key", b"")) != 24
        ):
            self._refuse(NO_HANDSHAKE)
        else:
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the server's own words
        self._refuse(self._problem)

    def _refuse(self, problem: Problem) -> None:
        # In the middle of an answer to an earlier request another one would be a part of it.
        if self.cycle is None or self.cycle.response_complete:
            status, error, message = problem
            body = error_body(status, error, message, {})
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
                *common_headers([]),
            ]
            first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
            lines = b"".join(b"%s: %s\r\n" % header for header in headers)
            self.transport.write(first + lines + b"\r\n" + body)
        self.transport.close()

    def _too_slow(self) -> None:
        if self._head_bytes:
            self._refuse(TOO_SLOW)
        else:
            self.transport.close()  # nothing was asked

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

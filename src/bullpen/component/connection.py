"""One connection to a server of ours: bounds the head of a request, answers malformed ones.

Used by `component/http_server` for every socket and port. Adds to uvicorn's own protocols what
they lack: they read a head of any length for ever, and answer what is not HTTP in another format.
Knows no routes, and never looks at a body.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from bullpen.component.answers import common_headers, error_body

HEAD_BYTES = 1 << 16
HEADERS = 100
HEAD_SECONDS = 20.0
REST_SECONDS = 5.0
NEW_SECONDS = 0.5  # the request of a new connection is on its way
HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)
# Limits of the library that reads the head of a WebSocket once more (websockets 17): what
# exceeds them ends there in an assertion.
LINE_BYTES = 8000

Problem = tuple[int, str, str]
MALFORMED: Problem = (400, "validation_error", "this is not an HTTP request")
TOO_LARGE: Problem = (431, "too_large", f"the head of a request has at most {HEAD_BYTES} bytes")
TOO_SLOW: Problem = (408, "timeout", f"the head of a request took longer than {HEAD_SECONDS:g} s")
NO_HANDSHAKE: Problem = (400, "validation_error", "this is not the handshake of a WebSocket")


# Of one listener, the oldest first.
Connections = dict["HttpConnection | WebSocketConnection", None]


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket. Uvicorn 0.54 takes a refusal for a missing answer and logs an error, unless the
    connection was closed before it looked."""

    siblings: Connections
    is_idle = False
    has_asked = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.siblings.pop(self, None)
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        with contextlib.suppress(ClientDisconnected):  # the application hears of it otherwise
            await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


class HttpConnection(HttpToolsProtocol):
    """HTTP, until it becomes a WebSocket. `enter` gives the connections of its listener, to be one
    of them until it is lost; None if there is no room. `leave` is called when it is lost."""

    def __init__(
        self,
        *,
        enter: Callable[[], Connections | None],
        leave: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._enter = enter
        self._leave = leave
        self._problem = MALFORMED
        self._is_in_head = True
        self._ends = 0  # of heads and of bodies that were read
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._came = self.loop.time()
        self._is_read = False
        self._siblings: Connections = {}
        self._under_way: Any = None  # the request that is handled; others may wait behind it

    @property
    def has_asked(self) -> bool:
        """Whether the head of a request has come."""
        return self.cycle is not None

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        siblings = self._enter()
        if siblings is None:  # the descriptors of the process are for all listeners
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            return
        self._siblings = siblings
        siblings[self] = None
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._siblings.pop(self, None)
        self._leave()
        self._forget_deadline()
        super().connection_lost(exc)
        # Uvicorn 0.54 tells the last request only, which may wait behind others.
        if self._under_way is not None and not self._under_way.response_complete:
            self._under_way.disconnected = True
            self._under_way.message_event.set()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """The server leaves. Who has connected just before is still answered."""
        left = self._came + NEW_SECONDS - self.loop.time()
        if self._is_read or left <= 0:
            super().shutdown()
        else:
            self.loop.call_later(left, super().shutdown)

    def data_received(self, data: bytes) -> None:
        if not self._is_read:
            self._is_read = True
            if _has_hung_up(self.transport):
                self.transport.abort()
                return
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

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_in_head and self._deadline is None:
            # Answered before it was sent: a refused body need not come to its end.
            self._deadline = self.loop.call_later(REST_SECONDS, self.transport.close)

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
            self._become(self.transport.get_protocol())

    def _become(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, WebSocketConnection)
        self._siblings.pop(self, None)
        protocol.siblings = self._siblings
        self._siblings[protocol] = None

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


def _has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has closed its side already. While a hub is away, connections wait in the
    kernel's queue: the request of a client that gave up must not count."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), HUNG_UP)
    return bool(poll.poll(0))

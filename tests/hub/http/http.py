"""A plain HTTP client that can say anything."""

import contextlib
import http.client
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAIT = 60.0
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
Where = int | Path  # a port or a socket


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(where: Where, timeout: float = WAIT) -> socket.socket:
    """A connection; also to a socket whose path is too long for an address."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), timeout)
    directory = os.open(where.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(timeout)
        found.connect(f"/proc/self/fd/{directory}/{where.name}")
        return found
    finally:
        os.close(directory)


class Client(http.client.HTTPConnection):
    """Of the standard library, connected to anything."""

    def __init__(self, where: Where, timeout: float = WAIT) -> None:
        port = where if isinstance(where, int) else None
        super().__init__("127.0.0.1" if port else "localhost", port, timeout=timeout)
        self.where = where

    def connect(self) -> None:
        self.sock = connect(self.where, WAIT)

    def begin(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> http.client.HTTPResponse:
        """Ask, and read the head of the answer."""
        self.request(method, target, body or None, dict(headers))
        return self.getresponse()


def ask(
    where: Where,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    *,
    token: str = "",
    head_only: bool = False,
) -> Answer:
    """One request on a connection of its own. A body that is no bytes is sent as JSON."""
    given = dict(headers or {})
    if token:
        given["Authorization"] = f"Bearer {token}"
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body and "Content-Type" not in given:
        given["Content-Type"] = "application/json"
    with contextlib.closing(Client(where)) as client:
        answer = client.begin(method, target, given, body or b"")
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, fields, b"" if head_only else answer.read())


def raw(where: Where, data: bytes, timeout: float = WAIT, *, one: bool = False) -> bytes:
    """Send these bytes, and read until the hub closes the connection; or has answered once."""
    with connect(where, timeout) as talk:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.sendall(data)
        found = b""
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while piece := talk.recv(1 << 16):
                found += piece
                talk.settimeout(WAIT)  # the rest of an answer may take its time
                head, end, body = found.partition(b"\r\n\r\n")
                length = re.search(rb"\ncontent-length: ([0-9]+)", head)
                if one and end and (length is None or len(body) >= int(length[1])):
                    break
        return found

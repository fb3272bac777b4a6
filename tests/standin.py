"""A stand-in for the hub: a Unix socket whose every answer is scripted by the test."""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bullpen import __version__


@dataclass(frozen=True)
class SeenRequest:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Script = Callable[[socket.socket, SeenRequest], None]


def answer(
    body: bytes = b"", status: str = "200 OK", version: str = __version__, **headers: str
) -> bytes:
    """A plain answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", f"bullpen-version: {version}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(data: bytes) -> Script:
    """The script that sends these bytes and closes."""
    return lambda connection, _: connection.sendall(data)


@dataclass
class StandIn:
    """Listens until it is closed; every connection is served by `script`, in a thread."""

    path: Path
    script: Script = field(default_factory=lambda: says(answer(b"text\n")))
    asked: list[SeenRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closing alone does not wake the thread that waits in accept.
        with contextlib.suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            asked = read_request(connection)
            self.asked.append(asked)
            self.script(connection, asked)


def read_request(connection: socket.socket) -> SeenRequest:
    """A whole request, or OSError."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    missing = int(headers.get("content-length", "0")) - len(body)
    pieces = [body]
    while missing > 0:
        pieces.append(_more(connection))
        missing -= len(pieces[-1])
    return SeenRequest(method, target, headers, b"".join(pieces))


def _more(connection: socket.socket) -> bytes:
    piece = connection.recv(1 << 16)
    if not piece:
        raise ConnectionResetError
    return piece

"""The barest stream of events: what is posted comes out of it. Beside it the way of an event to a
parent is measured.

`python -m bench.echo SOCKET` is the server.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.table import timed, wait_until

HEAD = "{} / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"


class Echo:
    """A listener of the stream, and a connection to post by."""

    def __init__(self, path: str) -> None:
        self._stream, self._post = _connect(path), _connect(path)
        self._stream.sendall(HEAD.format("GET").encode())
        self._until(self._stream, b": hello")

    def seconds(self) -> float:
        """From a post to its event."""
        return timed(self._say)

    def _say(self) -> None:
        self._post.sendall(HEAD.format("POST").encode())
        self._until(self._stream, b"data: x")
        self._until(self._post, b"\r\n\r\n")

    def _until(self, link: socket.socket, text: bytes) -> None:
        data = b""
        while text not in data:
            piece = link.recv(1 << 16)
            assert piece, data
            data += piece


def _connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(60)
    link.connect(path)
    return link


@contextmanager
def echo(path: str) -> Iterator[Echo]:
    """A server in a process of its own."""

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(path) == 0

    with subprocess.Popen([sys.executable, "-m", "bench.echo", path]) as server:
        try:
            wait_until(lambda: server.poll() is not None or listens(), 0.005)
            yield Echo(path)
        finally:
            server.kill()


def _serve(path: str) -> None:
    said: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream() -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        while True:
            yield await said.get()

    async def listen(_request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def say(_request: Request) -> Response:
        said.put_nowait(b"data: x\n\n")
        return Response()

    routes = [Route("/", listen, methods=["GET"]), Route("/", say, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), uds=path, log_level="error")


if __name__ == "__main__":
    _serve(sys.argv[1])

"""A webhook as a component serves it, and strangers at it who do not say all that they announce.

with serve(GITHUB.deliveries) as served:
    with Stranger(served.port, {"Content-Length": "100"}) as stranger:
        assert stranger.status() == 401
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bullpen.component import ports
from bullpen.component.answers import answer_error, answer_refused
from bullpen.component.guard import OwnerGuard
from bullpen.component.http_server import HttpServer
from bullpen.directors.forge import webhook
from bullpen.directors.forge.deliveries import Deliveries, Delivery
from bullpen.directors.forge.webhook import Webhook
from bullpen.errors import BullpenError
from tests.component.serving import port_of
from tests.forge.sender import SECRET


@dataclass
class Served:
    """A webhook as a component serves it, and what came of deliveries."""

    port: int = 0
    secret: str = SECRET
    heeded: list[Delivery] = field(default_factory=list)
    woken: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def _answer(_: Request, error: Any) -> Response:
    return answer_error(error) if isinstance(error, BullpenError) else answer_refused(error)


HANDLERS: Any = {BullpenError: _answer, HTTPException: _answer}  # as every component has them


@contextlib.contextmanager
def serve(deliveries: Deliveries, open_paths: Sequence[str] = (webhook.PATH,)) -> Iterator[Served]:
    """On a port of the loopback, by the server and the guard of all components."""
    served, listener = Served(), ports.listen(0)
    served.port = port_of(listener)

    def heed(delivery: Delivery) -> bool:
        served.heeded.append(delivery)
        return bool(delivery.issues)

    made = Webhook(
        deliveries,
        lambda: served.secret,
        heed,
        lambda: served.woken.append(time.monotonic()),
        served.notes.append,
    )
    status = Route("/status", lambda _: PlainTextResponse("status"))
    app = Starlette(routes=[made.route, status], exception_handlers=HANDLERS)
    guard = OwnerGuard(app, "owner", "robo", open_paths)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def run() -> None:
        await (await HttpServer(guard, stop).start(listener))

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        listener.close()


class Stranger:
    """A connection that sends the head of a delivery, and nothing of its body."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._lines = self._socket.makefile("rb")
        # The server says 100 when it begins to read: then the request is under way for certain.
        sent = {"Host": "hooks.example.com", "Expect": "100-continue", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self._socket.sendall(f"POST {webhook.PATH} HTTP/1.1\r\n{head}\r\n".encode())

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def status(self) -> int:
        """Of the next answer; 100: the body is asked for."""
        first = self._lines.readline()
        while self._lines.readline() not in (b"\r\n", b""):
            pass
        return int(first.split()[1])

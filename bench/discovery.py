"""Row 8: finding components on two hundred ports, beside an HTTP client that asks them all."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from bench.table import Row, interleaved, timed
from bullpen.component.discovery import scan

COMPONENTS = 5


def rows(short: bool) -> Iterator[Row]:
    """The scan, beside httpx."""
    count, rounds = (20, 1) if short else (200, 15)
    with components(count) as ports:
        ours, theirs = interleaved(
            rounds,
            lambda: timed(lambda: check(scan(ports))),
            lambda: timed(lambda: check(asyncio.run(by_httpx(ports)))),
        )
    yield Row("8", f"discovery, {count} ports, against httpx", ours, theirs, 0.1)


def check(answers: Sequence[object]) -> None:
    """All of them, or the time means nothing."""
    assert sum(answer is not None for answer in answers) == COMPONENTS


async def by_httpx(ports: list[int]) -> list[Any]:
    """The usual way: a client, and all requests at once."""
    async with httpx.AsyncClient(timeout=10.0) as client:

        async def ask(port: int) -> Any:
            try:
                return (await client.get(f"http://127.0.0.1:{port}/status")).json()
            except httpx.HTTPError:
                return None

        return await asyncio.gather(*map(ask, ports))


@contextlib.contextmanager
def components(count: int) -> Iterator[list[int]]:
    """As many ports that nobody else has, a few of which answer."""
    status = {
        "type": "view",
        "interfaces": ["statusable"],
        "name": "web",
        "version": "0.1.0",
        "state": "idle",
        "uptime_seconds": 1.0,
        "home_id": "0" * 16,
    }
    with contextlib.ExitStack() as stack:
        # Bound and not listening: whoever connects is refused, as at a port that is free.
        kept = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in kept:
            one.bind(("127.0.0.1", 0))
        for number, one in enumerate(kept[:COMPONENTS]):
            body = json.dumps({**status, "name": f"web-{number}"}).encode()
            one.listen(64)
            threading.Thread(target=_answer, args=(one, body), daemon=True).start()
        try:
            yield [one.getsockname()[1] for one in kept]
        finally:
            for one in kept[:COMPONENTS]:
                one.shutdown(socket.SHUT_RDWR)


def _answer(listener: socket.socket, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n"
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line, contextlib.suppress(OSError):
            line.recv(4096)
            line.sendall(f"{head}connection: close\r\n\r\n".encode() + body)

"""Row 8: finding components on two hundred ports, beside an HTTP client that asks them all."""

import asyncio
import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx

from bench.table import Row, interleaved, show, timed

PORTS = 200
COMPONENTS = 5
ROUNDS = 15


def rows() -> list[Row]:
    """The scan, beside httpx."""
    from bullpen.component.discovery import scan

    with components() as ports:
        found = scan(ports)
        assert len(found) == COMPONENTS, found

        def naive() -> float:
            return timed(lambda: check(asyncio.run(by_httpx(ports))))

        ours, theirs = interleaved(ROUNDS, lambda: timed(lambda: check(scan(ports))), naive)
    return [Row("8", f"discovery, {PORTS} ports (beside httpx)", ours, theirs, 0.1)]


def check(answers: list[Any]) -> None:
    """All of them, or the time means nothing."""
    assert sum(answer is not None for answer in answers) == COMPONENTS


async def by_httpx(ports: list[int]) -> list[Any]:
    """The usual way: a client, and all requests at once."""
    async with httpx.AsyncClient(timeout=1.0) as client:

        async def ask(port: int) -> Any:
            try:
                return (await client.get(f"http://127.0.0.1:{port}/status")).json()
            except httpx.HTTPError:
                return None

        return await asyncio.gather(*map(ask, ports))


@contextlib.contextmanager
def components() -> Iterator[list[int]]:
    """Two hundred ports that nobody else has, a few of which answer."""
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
        kept = [stack.enter_context(socket.socket()) for _ in range(PORTS)]
        for one in kept:
            one.bind(("127.0.0.1", 0))
        for number, one in enumerate(kept[:COMPONENTS]):
            body = json.dumps({**status, "name": f"web-{number}"}).encode()
            one.listen(64)
            threading.Thread(target=_answer, args=(one, body), daemon=True).start()
        yield [one.getsockname()[1] for one in kept]
        for one in kept[:COMPONENTS]:
            one.shutdown(socket.SHUT_RDWR)


def _answer(listener: socket.socket, body: bytes) -> None:
    head = f"HTTP/1.1 {http.client.OK.value} OK\r\ncontent-length: {len(body)}\r\n"
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line, contextlib.suppress(OSError):
            line.recv(4096)
            line.sendall(f"{head}connection: close\r\n\r\n".encode() + body)


if __name__ == "__main__":
    show(rows())
    sys.exit()

"""Row 8: finding components on two hundred ports, beside an HTTP client that asks them all."""

import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.table import Row, interleaved, show, timed

PORTS = 200
COMPONENTS = 5
ROUNDS = 15
WORKERS = 32


def rows() -> list[Row]:
    """The scan, beside httpx where that is installed, else beside requests."""
    from bullpen.component.discovery import scan

    with components() as ports:
        name, ask = client()
        found = scan(ports)
        assert len(found) == COMPONENTS, found

        def naive() -> float:
            with ThreadPoolExecutor(WORKERS) as pool:
                return timed(lambda: check(list(pool.map(ask, ports))))

        ours, theirs = interleaved(ROUNDS, lambda: timed(lambda: check(scan(ports))), naive)
    return [Row("8", f"discovery, {PORTS} ports (beside {name})", ours, theirs, 0.1)]


def check(answers: list[Any]) -> None:
    """All of them, or the time means nothing."""
    assert sum(answer is not None for answer in answers) == COMPONENTS


def client() -> tuple[str, Any]:
    """The usual way: a client, a request per port, in threads."""
    try:
        import httpx  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        return "requests", _by_requests
    talk = httpx.Client(timeout=1.0)

    def by_httpx(port: int) -> Any:
        try:
            return talk.get(f"http://127.0.0.1:{port}/status").json()
        except httpx.HTTPError:
            return None

    return "httpx", by_httpx


def _by_requests(port: int) -> Any:
    import requests

    try:
        return requests.get(f"http://127.0.0.1:{port}/status", timeout=1.0).json()
    except requests.RequestException:
        return None


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

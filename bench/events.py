"""Row 6: the event stream, against a plain Starlette one.

`python -m bench.events KIND SOCKET CLIENTS SECONDS` is the server, in a process of its own so
that its CPU time can be told from the clients'.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.table import NOISE_SECONDS, Row, interleaved, wait_until
from bullpen.hub.store.feed import Feed
from bullpen.hub.store.store import Store
from bullpen.model.event import Event, to_json

EVENTS_PER_SECOND = 1000
DATA = {"from": "amy", "to": "bob", "tool": "Bash", "text": "x" * 120}


def rows(short: bool) -> Iterator[Row]:
    """CPU of the server for each second of the stream."""
    clients, seconds, rounds = (10, 1, 1) if short else (50, 3, 3)
    plain, ours = interleaved(
        rounds,
        partial(_stream, "plain", clients, seconds),
        partial(_stream, "ours", clients, seconds),
    )
    what = f"CPU for 1 s of {EVENTS_PER_SECOND} events x {clients} clients"
    yield Row("6", what, ours, plain, goal=0.25)


def _stream(kind: str, clients: int, seconds: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch, "socket"))
        words = [sys.executable, "-m", "bench.events", kind, path, str(clients), str(seconds)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                wait_until(lambda: server.poll() is not None or _listens(path), 0.005)
                received = uvloop.run(_listen(path, clients))
                spent = float(server.communicate()[0])
            finally:
                server.kill()
    expected = clients * EVENTS_PER_SECOND * seconds
    assert received == expected, f"{kind}: {received} events of {expected}"
    return spent / seconds


def _listens(path: str) -> bool:
    """It is bound a moment before that."""
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(path) == 0


async def _listen(path: str, clients: int) -> int:
    return sum(await asyncio.gather(*(_count(path) for _ in range(clients))))


async def _count(path: str) -> int:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found, rest = 0, b""
    while data := await reader.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        found += sum(line.startswith(b"data: ") for line in lines)
    writer.close()
    return found


def _serve(kind: str, path: str, clients: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = Store.open(Path(scratch, "state.db"))
        source = Ours(Feed(store)) if kind == "ours" else Plain()
        app = Starlette(routes=[Route("/", partial(_answer, source))])
        server = uvicorn.Server(uvicorn.Config(app, uds=path, log_level="error"))

        async def serve() -> None:
            alone = await _make_events(source, 0, EVENTS_PER_SECOND)
            producing = asyncio.create_task(produce(alone))
            await server.serve()
            await producing

        async def produce(alone: float) -> None:
            """An event each millisecond for all clients; prints what that costs above one for
            nobody: waking up a thousand times a second is a good part of the cheaper one."""
            while source.clients < clients:
                await asyncio.sleep(0.01)
            count = EVENTS_PER_SECOND * seconds
            spent = await _make_events(source, EVENTS_PER_SECOND, count)
            print(max(spent - alone * seconds, NOISE_SECONDS), flush=True)
            while source.is_behind:  # on a busy machine clients read later
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)  # what was given to them last is sent
            source.end()
            server.should_exit = True

        uvloop.run(serve())
        store.close()


async def _answer(source: "Ours | Plain", _request: Request) -> StreamingResponse:
    return StreamingResponse(source.stream(), media_type="text/event-stream")


async def _make_events(source: "Ours | Plain", first: int, count: int) -> float:
    """The CPU seconds that it took."""
    start, spent, made = time.monotonic(), time.process_time(), 0
    while made < count:
        await asyncio.sleep(0.001)
        due = min(int((time.monotonic() - start) * EVENTS_PER_SECOND), count)
        for number in range(first + made, first + due):
            source.publish(Event(number + 1, time.time(), "hook.received", "amy", DATA))
        made = due
    await asyncio.sleep(0.1)  # the last ones are still on their way
    return time.process_time() - spent


class Ours:
    """Encoded once, in batches."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.clients = 0

    async def stream(self) -> AsyncIterator[bytes]:
        self.clients += 1
        async for chunk in self.feed.stream(None):
            yield chunk

    def publish(self, event: Event) -> None:
        self.feed.publish([event])

    @property
    def is_behind(self) -> bool:
        """Whether a client has not been given everything."""
        return any(reader.position < self.feed.last for reader in self.feed._readers)

    def end(self) -> None:
        self.feed.close()


class Plain:
    """As one writes it first: a queue and an encoding for each client."""

    is_behind = False  # its end comes after everything else

    def __init__(self) -> None:
        self.queues: list[asyncio.Queue[Event | None]] = []

    @property
    def clients(self) -> int:
        return len(self.queues)

    async def stream(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.queues.append(queue)
        while (event := await queue.get()) is not None:
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(to_json(event))}\n\n"

    def publish(self, event: Event | None) -> None:
        for queue in self.queues:
            queue.put_nowait(event)

    def end(self) -> None:
        self.publish(None)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

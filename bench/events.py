"""Row 6: the event stream, against a plain Starlette one. Row 7: durable messages, against
NATS JetStream, which answers before its messages are on disk.

`python -m bench.events KIND SOCKET` is the server of row 6, in a process of its own so that
its CPU time can be told from the clients'.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.table import Row, interleaved
from bullpen.hub.feed import Feed
from bullpen.hub.store import Store
from bullpen.model.event import Draft, Event, to_json

CLIENTS = 50
EVENTS_PER_SECOND = 1000
STREAM_SECONDS = 3
CALLERS = 64
MESSAGES = 200 * CALLERS
DATA = {"from": "amy", "to": "bob", "tool": "Bash", "text": "x" * 120}
NATS_SERVER = Path(sys.executable).with_name("nats-server")


def rows(rounds: int = 3) -> list[Row]:
    """Both rows; the second only where NATS is installed."""
    plain, ours = interleaved(rounds, partial(_stream, "plain"), partial(_stream, "ours"))
    what = f"CPU for 1 s of {EVENTS_PER_SECOND} events x {CLIENTS} clients"
    return [Row("6", what, ours, plain, goal=0.25), *_message_rows(2 * rounds + 1)]


# ── row 6 ──


def _stream(kind: str) -> float:
    """CPU seconds of the server for each second of the stream."""
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-") as scratch:
        path = str(Path(scratch, "socket"))
        words = [sys.executable, "-m", "bench.events", kind, path]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            _wait_for(lambda: Path(path).exists())
            received = uvloop.run(_listen(path))
            spent = float(server.communicate()[0])
    expected = CLIENTS * EVENTS_PER_SECOND * STREAM_SECONDS
    assert received == expected, f"{kind}: {received} events of {expected}"
    return spent / STREAM_SECONDS


async def _listen(path: str) -> int:
    return sum(await asyncio.gather(*(_count(path) for _ in range(CLIENTS))))


async def _count(path: str) -> int:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found, rest = 0, b""
    while data := await reader.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        found += sum(line.startswith(b"data: ") for line in lines)
    writer.close()
    return found


def _serve(kind: str, path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-") as scratch:
        store = Store.open(Path(scratch, "state.db"))
        source = Ours(Feed(store)) if kind == "ours" else Plain()
        app = Starlette(routes=[Route("/", partial(_answer, source))])
        server = uvicorn.Server(uvicorn.Config(app, uds=path, log_level="error"))

        async def serve() -> None:
            alone = await _make_events(source, 0, EVENTS_PER_SECOND)
            producing = asyncio.create_task(_produce(source, server, alone))
            await server.serve()
            await producing

        uvloop.run(serve())
        store.close()


async def _answer(source: "Ours | Plain", _request: Request) -> StreamingResponse:
    return StreamingResponse(source.stream(), media_type="text/event-stream")


async def _produce(source: "Ours | Plain", server: uvicorn.Server, alone: float) -> None:
    """An event each millisecond for all clients; prints what that costs above one for nobody,
    because waking up a thousand times a second is a good part of the cheaper one."""
    while source.clients < CLIENTS:
        await asyncio.sleep(0.01)
    spent = await _make_events(source, EVENTS_PER_SECOND, EVENTS_PER_SECOND * STREAM_SECONDS)
    print(spent - alone * STREAM_SECONDS, flush=True)
    source.end()
    server.should_exit = True


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

    def end(self) -> None:
        self.feed.close()


class Plain:
    """As one writes it first: a queue and an encoding for each client."""

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


# ── row 7 ──


def _message_rows(rounds: int) -> list[Row]:
    if not NATS_SERVER.exists():
        print(f"row 7 is left out: {NATS_SERVER} is not there", file=sys.stderr)
        return []
    with _nats() as url:
        own, shared, ours = interleaved(
            rounds,
            lambda: uvloop.run(_jetstream(url, connections=CALLERS)),
            lambda: uvloop.run(_jetstream(url, connections=1)),
            lambda: uvloop.run(_store()),
        )
    return [
        Row("7", f"1000 messages on disk, {CALLERS} callers", ours, own, goal=0.5),
        # Not what separate callers have, but the fastest that JetStream can be.
        Row("7", "  against one connection for all callers", ours, shared, goal=1),
    ]


@contextlib.contextmanager
def _nats() -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    scratch = tempfile.mkdtemp(prefix="bullpen-bench-")
    words = [str(NATS_SERVER), "-js", "-sd", scratch, "-a", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(lambda: _answers(port))
            yield f"nats://127.0.0.1:{port}"
        finally:
            server.terminate()
    shutil.rmtree(scratch)


async def _jetstream(url: str, connections: int) -> float:
    import nats
    from nats.js.api import StorageType, StreamConfig

    links = [await nats.connect(url) for _ in range(connections)]
    streams = [link.jetstream() for link in links]
    await streams[0].add_stream(
        StreamConfig(name="bench", subjects=["bench.>"], storage=StorageType.FILE)
    )

    async def publish(caller: int) -> None:
        draft = _draft(caller)
        message = {"time": draft.time, "kind": draft.kind, "agent": draft.agent, "data": draft.data}
        await streams[caller % connections].publish("bench.messages", json.dumps(message).encode())

    spent = await _all_callers(publish)
    await streams[0].delete_stream("bench")
    for link in links:
        await link.close()
    return spent


async def _store() -> float:
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-") as scratch:
        store = Store.open(Path(scratch, "state.db"))

        async def append(caller: int) -> None:
            await store.append(_draft(caller))

        spent = await _all_callers(append)
        store.close()
    return spent


def _draft(caller: int) -> Draft:
    return Draft(time=time.time(), kind="message.sent", agent=f"agent-{caller}", data=DATA)


async def _all_callers(send: Callable[[int], Coroutine[Any, Any, None]]) -> float:
    """Seconds for a thousand messages, when every caller waits for its answer each time."""

    async def call(caller: int) -> None:
        for _ in range(MESSAGES // CALLERS):
            await send(caller)

    os.sync()
    start = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    return (time.perf_counter() - start) / MESSAGES * 1000


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.005)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])

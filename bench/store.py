"""Row 7: durable messages, against NATS JetStream, which answers before its are on disk."""

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvloop

from bench.table import Row, Skipped, interleaved, wait_until
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft

DATA = {"from": "amy", "to": "bob", "tool": "Bash", "text": "x" * 120}
NATS_SERVER = Path(sys.executable).with_name("nats-server")


def rows(short: bool) -> Iterator[Row]:
    """Seconds for a thousand messages: twice as fast is half of them."""
    if not NATS_SERVER.exists() or not importlib.util.find_spec("nats"):
        raise Skipped(f"NATS is not installed beside {sys.executable}")
    callers, each, rounds = (4, 2, 1) if short else (64, 200, 7)
    with _nats() as url:
        own, shared, ours = interleaved(
            rounds,
            lambda: uvloop.run(_jetstream(url, callers, each, connections=callers)),
            lambda: uvloop.run(_jetstream(url, callers, each, connections=1)),
            lambda: uvloop.run(_store(callers, each)),
        )
    yield Row("7", f"1000 messages on disk, {callers} callers", ours, own, goal=0.5)
    # Not what separate callers have, but the fastest that JetStream can be.
    yield Row("7", "  against one connection for all callers", ours, shared, None)


@contextlib.contextmanager
def _nats() -> Iterator[str]:
    """It chooses its port, and writes it into a file when it listens there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        words = [str(NATS_SERVER), "-js", "-sd", scratch, "-a", "127.0.0.1", "-p", "-1"]
        with subprocess.Popen(
            [*words, "--ports_file_dir", scratch],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            try:
                file = Path(scratch, f"nats-server_{server.pid}.ports")
                wait_until(lambda: server.poll() is not None or bool(_urls(file)), 0.005)
                yield _urls(file)[0]
            finally:
                server.terminate()


def _urls(file: Path) -> list[str]:
    try:
        found: list[str] = json.loads(file.read_text())["nats"]
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    return found


async def _jetstream(url: str, callers: int, each: int, connections: int) -> float:
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

    spent = await _all_callers(publish, callers, each)
    await streams[0].delete_stream("bench")
    for link in links:
        await link.close()
    return spent


async def _store(callers: int, each: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        store = Store.open(Path(scratch, "state.db"))
        try:
            return await _all_callers(lambda caller: store.append(_draft(caller)), callers, each)
        finally:
            store.close()


def _draft(caller: int) -> Draft:
    return Draft(time=time.time(), kind="message.sent", agent=f"agent-{caller}", data=DATA)


async def _all_callers(send: Callable[[int], Awaitable[object]], callers: int, each: int) -> float:
    """Seconds for a thousand messages, when every caller waits for its answer each time."""

    async def call(caller: int) -> None:
        for _ in range(each):
            await send(caller)

    os.sync()
    start = time.perf_counter()
    await asyncio.gather(*map(call, range(callers)))
    return (time.perf_counter() - start) / (callers * each) * 1000

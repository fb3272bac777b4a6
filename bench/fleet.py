"""Row 19: a request that is carried to another hub, beside a bare request of NATS. Row 20: tasks of
the queue, beside a bare pull of JetStream with as many acknowledged writes.

Both ends are in this process, on the real server with TLS. What hubs add on either side, HTTP and
the task itself, is not the fleet's.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.nats_server import fleet_server
from bench.table import Row
from bullpen.fleet import carry, link
from bullpen.fleet.channel import Channel, Head
from bullpen.fleet.credential import Credential, read_credential
from bullpen.fleet.server_certificate import trusting
from bullpen.fleet.subjects import queued, task_key
from bullpen.fleet.task_records import Result, Signed, Standing, TaskRecord, name_need
from bullpen.fleet.task_server import TaskServer
from bullpen.model.fleet import HostState
from bullpen.model.task import Completed, Wish

NEED = name_need("", {})
WORKERS = 8
BARE = "bare"


def rows(short: bool) -> Iterator[Row]:
    """Both."""
    requests, tasks, rounds = (5, 8, 1) if short else (200, 400, 5)
    with fleet_server(("h1", "h2"), queue_user=BARE) as server:
        credentials = {host: read_credential(file) for host, file in server.keys.items()}
        mine, other = asyncio.run(_carried(server.url, credentials, requests, rounds))
        yield Row("19", "a request to another hub, against NATS", mine, other, 3.0)
        mine, other = asyncio.run(_queued(server.url, credentials, tasks, rounds))
        yield Row("20", "a task of the queue, against a JetStream pull", mine, other, 2.0)


@contextlib.asynccontextmanager
async def _running(*works: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        await link.cancel_all(*tasks)


async def _interleaved(
    rounds: int, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    await ours()
    await theirs()
    pairs = [(await ours(), await theirs()) for _ in range(rounds)]
    return median(mine for mine, _ in pairs), median(other for _, other in pairs)


# ── requests ──


async def _carried(  # noqa: C901 - both ends of two ways
    url: str, credentials: dict[str, Credential], count: int, rounds: int
) -> tuple[float, float]:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def answer(channel: Channel, head: Head, body: bytes) -> None:
        await carry.serve(app, "caller", channel, head, body)

    links = {
        host: link.Link(
            url, given, lambda host=host: HostState(name=host, version="", at=time.time()), answer
        )
        for host, given in credentials.items()
    }
    scope = {"type": "http", "method": "GET", "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        if next(asked):
            return {"type": "http.request", "body": b""}
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(_event: Any) -> None:
        """Nobody reads it."""

    async def ours() -> float:
        nonlocal asked
        start = time.perf_counter()
        for _ in range(count):
            asked = iter((True, False))
            await carry.forward(links["h1"].peers, "h2", "", b"/x", scope, receive, send)
        return (time.perf_counter() - start) / count

    asked = iter(())
    bare, echo = await _bare(url, credentials), await _bare(url, credentials)

    async def reply(message: Msg) -> None:
        await message.respond(b"{}")

    async def theirs() -> float:
        start = time.perf_counter()
        for _ in range(count):
            await bare.request("bench", b"{}", 60)
        return (time.perf_counter() - start) / count

    await echo.subscribe("bench", cb=reply)
    await echo.flush()
    try:
        async with _running(*(each.run() for each in links.values())):
            await asyncio.gather(*(each.joined.wait() for each in links.values()))
            return await _interleaved(rounds, ours, theirs)
    finally:
        await bare.close()
        await echo.close()


# ── tasks ──


async def _queued(
    url: str, credentials: dict[str, Credential], count: int, rounds: int
) -> tuple[float, float]:
    h1, h2 = (TaskServer(url, credentials[host]) for host in ("h1", "h2"))
    asking, taking = (Signed(credentials[host]) for host in ("h1", "h2"))
    numbers = itertools.count()
    bare = await _bare(url, credentials)
    jetstream = bare.jetstream()

    async def ours() -> float:
        asked = TaskRecord(at=time.time(), wish=Wish(prompt="x" * 200))
        for id in [f"t-{next(numbers)}" for _ in range(count)]:
            await h1.offer(NEED, id, asking.write(queued("h1", NEED, id), asked))
        return await _drained([lambda: _take(h2, taking)] * WORKERS, count)

    async def theirs() -> float:
        for _ in range(count):
            await jetstream.publish(f"bench_queue.{next(numbers)}", b"x" * 600, 60)
        pulled = [
            await jetstream.pull_subscribe_bind("bench", "bench_queue") for _ in range(WORKERS)
        ]
        takes = [partial(_take_bare, jetstream, each, numbers) for each in pulled]
        return await _drained(takes, count)

    async with _running(h1.run(), h2.run()):
        await asyncio.gather(h1.is_connected.wait(), h2.is_connected.wait())
        for name, retention in (("bench_queue", "workqueue"), ("bench_kv", "limits")):
            await jetstream.add_stream(
                name=name, subjects=[f"{name}.>"], retention=retention, max_msgs_per_subject=1
            )
        await jetstream.add_consumer("bench_queue", durable_name="bench", ack_policy="explicit")
        found = await _interleaved(rounds, ours, theirs)
    await bare.close()
    return found


async def _take(server: TaskServer, signed: Signed) -> None:
    """As `hub/fleet_tasks` does: who asks is checked, two writes, each by the revision before."""
    message = None
    while message is None:
        message = await server.pull(NEED, 60.0)
    id = message.subject.rpartition(".")[2]
    signed.read_asked(message.subject, message.data)
    entry = await server.read("h1", id)
    place, revision = task_key("h1", id), entry.revision if entry else 0
    ended = Result(status=Completed(), ended=1.0)
    for standing in (
        Standing(kind="leased", epoch=1, by="h2", agent="amy"),
        Standing(kind="ended", epoch=1, by="h2", agent="amy", result=ended),
    ):
        revision = await server.put("h1", id, signed.write(place, standing), revision)
    await message.ack_sync()


async def _take_bare(jetstream: Any, pulled: Any, numbers: Iterator[int]) -> None:
    (message,) = await pulled.fetch(1, 60)
    place = f"bench_kv.{next(numbers)}"
    for _ in range(2):
        await jetstream.publish(place, b"x" * 600, 60)
    await message.ack_sync()


async def _drained(takes: Sequence[Callable[[], Awaitable[None]]], count: int) -> float:
    """Seconds for each of so many tasks, by that many workers at once."""
    left = iter(range(count))

    async def work(take: Callable[[], Awaitable[None]]) -> None:
        for _ in left:
            await take()

    start = time.perf_counter()
    await asyncio.gather(*map(work, takes))
    return (time.perf_counter() - start) / count


async def _bare(url: str, credentials: dict[str, Credential]) -> Client:
    tls = trusting(credentials["h1"].server)
    return await nats.connect(
        url, user=BARE, password=BARE, tls=tls, tls_handshake_first=True, inbox_prefix="_INBOX_b"
    )

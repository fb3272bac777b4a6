"""The event stream: each id exactly once and in order, whatever clients and hub do meanwhile."""

import asyncio
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bullpen.errors import BullpenError
from bullpen.hub.store import feed as feed_module
from bullpen.hub.store.events import list_after
from bullpen.hub.store.expire import expire
from bullpen.hub.store.feed import Feed
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft, Event, to_json
from tests.hub.store.calls import read, sql
from tests.waiting import wait_until

WAIT = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "state.db")
    yield opened
    opened.close()


@asynccontextmanager
async def feeding(store: Store) -> AsyncIterator[Feed]:
    """A feed that gets what the store commits, wired as the hub does it."""
    feed, loop = Feed(store), asyncio.get_running_loop()
    store.on_commit = lambda events: loop.call_soon_threadsafe(feed.publish, events) and None
    try:
        yield feed
    finally:
        store.on_commit = None
        feed.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, WAIT))


def drafts(count: int, **data: object) -> list[Draft]:
    return [Draft(time=1.5, kind="task.state", agent="amy", data=data) for _ in range(count)]


@dataclass
class Client:
    """Reads a stream as a browser does."""

    stream: AsyncGenerator[bytes, None]
    text: bytes = b""
    last: int = -1
    ids: list[int] = field(default_factory=list)
    blocks: list[dict[str, str]] = field(default_factory=list)

    def take(self, chunk: bytes) -> None:
        *blocks, self.text = (self.text + chunk).split(b"\n\n")
        for block in blocks:
            lines = [line for line in block.decode().split("\n") if not line.startswith(":")]
            fields = dict(line.split(": ", 1) for line in lines)
            self.blocks.append(fields)
            self.last = int(fields.get("id", self.last))
            if "data" in fields and fields["event"] != "reset":
                assert json.loads(fields["data"])["id"] == self.last
                self.ids.append(self.last)

    async def read(self, until: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not until():
                self.take(await anext(self.stream))

    async def begin(self) -> "Client":
        self.take(await anext(self.stream))
        return self


# ── one client ──


def test_b3_what_is_stored_comes_first_then_what_happens(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            client = Client(feed.stream(1))
            await client.read(lambda: client.last == 3)
            [event] = await store.append(
                Draft(time=2.5, kind="agent.state", data={"text": "a\r\nb\u2028\udc80"})
            )
            await client.read(lambda: client.last == 4)
            assert client.ids == [2, 3, 4]
            assert client.blocks[-1]["event"] == "agent.state"
            assert json.loads(client.blocks[-1]["data"]) == to_json(event)

    run(main())


def test_from_now_on_means_from_the_call(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            client = Client(feed.stream(None))
            await store.append(*drafts(2))
            await client.read(lambda: client.last == 5)
            assert client.ids == [4, 5]

    run(main())


def test_b3_a_client_that_is_cut_off_before_its_first_event_misses_nothing(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            client = await Client(feed.stream(None)).begin()
            assert (client.last, client.ids) == (3, [])
            await client.stream.aclose()
            await store.append(*drafts(2))
            again = Client(feed.stream(client.last))
            await again.read(lambda: again.last == 5)
            assert again.ids == [4, 5]

    run(main())


def test_only_what_is_wanted_and_it_still_resumes_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "HEARTBEAT_SECONDS", 0.05)

    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(
                *(replace(draft, agent=f"a{n}") for n, draft in enumerate(drafts(5)))
            )
            client = Client(feed.stream(0, "a1"))
            await client.read(lambda: client.ids == [2])
            await store.append(
                *(replace(draft, agent=f"a{n}") for n, draft in enumerate(drafts(5)))
            )
            await client.read(lambda: client.last == 10)
            assert client.ids == [2, 7]

    run(main())


def test_an_id_that_was_never_given_is_said_and_goes_on_from_now(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            for unknown in (4, 10**30):
                client = await Client(feed.stream(unknown)).begin()
                first = client.blocks[0]
                assert (first["event"], first["data"]) == ("reset", f'{{"last":{client.last}}}')
                [event] = await store.append(*drafts(1))
                await client.read(lambda client=client, event=event: client.ids == [event.id])
            below = Client(feed.stream(-7))
            await below.read(lambda: below.ids == [1, 2, 3, 4, 5])
            assert "event" not in below.blocks[0]

    run(main())


def test_an_id_that_is_committed_and_not_published_yet_is_known(store: Store) -> None:
    async def main() -> None:
        feed = Feed(store)
        events = await store.append(*drafts(3))
        client = await Client(feed.stream(2)).begin()
        assert client.blocks == [{"retry": "1000", "id": "2"}]
        feed.publish(events)
        await client.read(lambda: client.ids == [3])
        feed.close()

    run(main())


def test_expired_events_are_passed_over(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(20))
            assert await expire(store, 0, now=100) == 20
            client = await Client(feed.stream(5)).begin()
            await store.append(*drafts(1))
            await client.read(lambda: client.ids == [21])

    run(main())


def test_silence_has_a_heartbeat(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "HEARTBEAT_SECONDS", 0.03)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            # The silence is counted from the stream's beginning, which may be long before its first
            # block is read.
            start = loop.time()
            stream = feed.stream(None)
            await anext(stream)
            ping = b": ping\nid: 3\n\n"
            for _ in range(3):
                assert await anext(stream) == ping
            assert loop.time() - start >= 0.09
            await store.append(*drafts(1))
            # What is committed is published a moment later.
            while (chunk := await anext(stream)) == ping:
                pass
            assert b"\ndata: " in chunk

    run(main())


def test_a_store_that_fails_ends_the_stream_and_nobody_elses(tmp_path: Path, store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            live = await Client(feed.stream(None)).begin()
            await store.write(sql("UPDATE events SET data = '{' WHERE id = 2"))
            with pytest.raises(ValueError, match="Expecting property name"):
                await Client(feed.stream(0)).read(lambda: False)
            await store.append(*drafts(1))
            await live.read(lambda: live.ids == [4])
        closed = Store.open(tmp_path / "other.db")
        other = Feed(closed)
        other.publish([Event(1, 1.5, "task.state", "", {})])
        closed.close()
        with pytest.raises(BullpenError, match="closed"):
            await Client(other.stream(0)).read(lambda: False)

    run(main())


def test_a_feed_that_closes_ends_every_stream(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "HEARTBEAT_SECONDS", 1000.0)  # not for a heartbeat to do

    async def main() -> None:
        async with feeding(store) as feed:
            await store.append(*drafts(3))
            waiting, behind, fresh = [
                await Client(feed.stream(after)).begin() for after in (3, 0, 3)
            ]
            pending = asyncio.create_task(anext(waiting.stream, None))
            await asyncio.sleep(0)
            feed.close()
            assert await pending is None
            assert await anext(behind.stream, None) is None
            assert await anext(fresh.stream, None) is None
            assert await anext(feed.stream(0), None) is None
            assert not feed._readers

    run(main())


def test_b3_what_is_published_twice_is_sent_once(store: Store) -> None:
    async def main() -> None:
        feed = Feed(store)
        client = await Client(feed.stream(None)).begin()
        events = await store.append(*drafts(3))
        feed.publish(events[:2])
        feed.publish(events)  # before the first have gone out
        await client.read(lambda: client.last == 3)
        assert client.ids == [1, 2, 3]
        feed.close()

    run(main())


def test_an_id_before_the_first_is_the_beginning(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            client = await Client(feed.stream(-5)).begin()
            assert client.last == 0
            await client.stream.aclose()

    run(main())


# ── many clients ──


def test_an_event_is_encoded_once_and_batches_are_shared(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            streams = [feed.stream(None) for _ in range(20)]
            for stream in streams:
                await anext(stream)
            waiting = [asyncio.create_task(anext(stream)) for stream in streams]
            await store.append(*drafts(3))
            chunks = await asyncio.gather(*waiting)
            assert len({id(chunk) for chunk in chunks}) == 1
            assert chunks[0].count(b"\ndata: ") == 3

    run(main())


def test_nobody_listens_and_nothing_is_kept(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            client = await Client(feed.stream(None)).begin()
            await store.append(*drafts(3))
            await client.read(lambda: client.last == 3)
            assert feed.ring
            await client.stream.aclose()
            await store.append(*drafts(3))
            assert not feed.ring
            assert not feed._new

    run(main())


def test_nothing_is_left_of_a_client_that_has_gone(store: Store) -> None:
    """Not even the timer of its heartbeats, which would go on for ever."""

    async def main() -> None:
        async with feeding(store) as feed:
            client = await Client(feed.stream(None)).begin()
            (reader,) = feed._readers
            kept = weakref.ref(reader)
            await client.stream.aclose()
            del client, reader
            gc.collect()
            assert kept() is None

    run(main())


def test_a_stream_that_nobody_holds_is_forgotten(store: Store) -> None:
    async def main() -> None:
        async with feeding(store) as feed:
            client = await Client(feed.stream(None)).begin()
            cancelled = asyncio.create_task(_read_forever(feed.stream(None)))
            while len(feed._readers) < 2:
                await asyncio.sleep(0)
            cancelled.cancel()
            del client
            gc.collect()
            while feed._readers:
                await asyncio.sleep(0)

    run(main())


async def _read_forever(stream: AsyncGenerator[bytes, None]) -> None:
    async for _ in stream:
        pass


def test_b3_a_slow_client_holds_no_memory_and_gets_everything(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RING_BYTES", 40_000)
    monkeypatch.setattr(feed_module, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(feed_module, "PAGE_BYTES", 8_000)
    sizes: list[int] = []

    async def main() -> None:
        async with feeding(store) as feed:
            slow = await Client(feed.stream(None)).begin()
            fast = await Client(feed.stream(None)).begin()
            for _ in range(30):
                await store.append(*drafts(20, text="x" * 400))
                await fast.read(lambda: fast.last == store.last_id)
                held = sum(len(batch.whole) for batch in feed.ring)
                assert held == feed._ring_bytes <= 50_000
            while slow.last < 600:
                chunk = await asyncio.wait_for(anext(slow.stream), WAIT)
                sizes.append(len(chunk))
                slow.take(chunk)
            assert slow.ids == fast.ids == list(range(1, 601))

    run(main())
    assert max(sizes) < 21_000


# ── any interleaving ──

actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("publish"), st.integers(1, 9)),
        st.tuples(st.just("connect"), st.integers(-1, 30)),
        st.tuples(st.just("read"), st.integers(0, 9)),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("turn"), st.integers(1, 5)),
    ),
    max_size=40,
)


class Interleaving:
    """Commits, publications and readers, each at its own pace; what a client may expect."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.feed = Feed(store)
        self.start = store.last_id
        self.held: list[Event] = []  # committed, not published yet
        self.clients: list[Client] = []
        self.pending: dict[int, asyncio.Task[bytes]] = {}
        self.expected: dict[int, int] = {}  # the position that each began with

    async def act(self, action: str, number: int) -> None:
        match action:
            case "append":
                self.held += await self.store.append(*drafts(number))
            case "publish":
                self.feed.publish(self.held[:number])
                del self.held[:number]
            case "connect":
                self.connect(None if number < 0 else self.start + number)
            case "read" if self.clients:
                self.read(number % len(self.clients))
            case "drop" if self.clients:
                await self.drop_and_resume(number % len(self.clients))
            case "turn":
                for _ in range(number):
                    await asyncio.sleep(0)

    def connect(self, after: int | None) -> None:
        if after is not None:
            after = min(after, self.store.last_id)
        self.expected[len(self.clients)] = self.feed.last if after is None else after
        self.clients.append(Client(self.feed.stream(after)))

    def read(self, number: int) -> None:
        """Take what has come, and ask for more; never waits."""
        task = self.pending.get(number)
        if task is not None and not task.done():
            return
        if task is not None:
            self.clients[number].take(task.result())
        self.pending[number] = asyncio.ensure_future(anext(self.clients[number].stream))

    async def drop_and_resume(self, number: int) -> None:
        """Cut off at any moment; what was on its way is lost, and asked for again."""
        client, task = self.clients[number], self.pending.pop(number, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await client.stream.aclose()
        after = client.last if client.last >= 0 else self.expected[number]
        client.stream, client.text = self.feed.stream(after), b""

    async def finish(self) -> None:
        self.feed.publish(self.held)
        last = self.store.last_id
        for number, client in enumerate(self.clients):
            while client.last < last:
                if number not in self.pending:
                    self.read(number)
                await asyncio.wait({self.pending[number]}, timeout=WAIT)
                client.take(self.pending.pop(number).result())
            assert client.ids == list(range(self.expected[number] + 1, last + 1))
        for task in self.pending.values():
            task.cancel()
        self.feed.close()


def _interleave(store: Store, steps: list[tuple[str, int]]) -> None:
    async def main() -> None:
        world = Interleaving(store)
        for action, number in steps:
            await world.act(action, number)
        await world.finish()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_module, "RING_BYTES", 700)
        patch.setattr(feed_module, "CHUNK_BYTES", 300)
        patch.setattr(feed_module, "PAGE_EVENTS", 4)
        patch.setattr(feed_module, "BATCH_SECONDS", 0.0005)
        run(main())


@settings(max_examples=60)
@given(steps=actions)
def test_b3_any_interleaving_gives_each_event_once_and_in_order(
    store: Store, steps: list[tuple[str, int]]
) -> None:
    _interleave(store, steps)


@pytest.mark.storm
@settings(max_examples=1500)
@given(steps=actions)
def test_b3_any_of_many_interleavings_gives_each_event_once_and_in_order(
    store: Store, steps: list[tuple[str, int]]
) -> None:
    _interleave(store, steps)


@pytest.mark.storm
def test_b3_clients_that_come_and_go_under_load(store: Store) -> None:
    """Fifty of them, real batches, the writer's thread at full speed."""
    total = 20_000

    async def client(feed: Feed, chance: random.Random) -> None:
        start = chance.randrange(0, store.last_id + 1)
        reader = Client(feed.stream(start))
        while reader.last < total:
            for _ in range(chance.randrange(1, 30)):
                if reader.last >= total:
                    break
                reader.take(await asyncio.wait_for(anext(reader.stream), WAIT))
            await reader.stream.aclose()
            reader.stream = feed.stream(reader.last)
        assert reader.ids == list(range(start + 1, total + 1))

    async def append() -> None:
        for _ in range(total // 100 // 10):
            await asyncio.gather(*(store.append(*drafts(10)) for _ in range(100)))

    async def main() -> None:
        async with feeding(store) as feed, asyncio.TaskGroup() as group:
            group.create_task(append())
            for number in range(50):
                group.create_task(client(feed, random.Random(number)))

    asyncio.run(asyncio.wait_for(main(), 600))


# ── over HTTP, and across deaths of the hub ──


def test_over_http_a_client_that_leaves_is_noticed(store: Store, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        async with feeding(store) as feed:

            async def answer(_request: Request) -> StreamingResponse:
                return StreamingResponse(feed.stream(0), media_type="text/event-stream")

            app = Starlette(routes=[Route("/", answer)])
            server = uvicorn.Server(uvicorn.Config(app, uds=path, log_level="error"))
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.001)
            await store.append(*drafts(3))
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"id: 3\n")
            await store.append(*drafts(1))
            await reader.readuntil(b"id: 4\n")
            assert len(feed._readers) == 1
            writer.close()
            while feed._readers:
                await asyncio.sleep(0.001)
            server.should_exit = True
            await serving

    run(main())


HUB = """
import asyncio, os, sys
from pathlib import Path
from bullpen.hub.store.feed import Feed
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft

async def main():
    store = Store.open(Path(sys.argv[1], "state.db"))
    feed, loop = Feed(store), asyncio.get_running_loop()
    store.on_commit = lambda events: loop.call_soon_threadsafe(feed.publish, events)

    async def serve(reader, writer):
        after = (await reader.readline()).decode().strip()
        try:
            async for chunk in feed.stream(int(after) if after else None):
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass

    path = Path(sys.argv[1], "socket")
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, str(path))

    async def append():
        while True:
            await store.append(Draft(1.5, "task.state"), Draft(1.5, "task.state"))

    await asyncio.gather(*(append() for _ in range(5)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_b3_no_gap_and_no_duplicate_across_deaths_of_the_hub(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = tmp_path / "socket"
    client = Client(None)  # type: ignore[arg-type]
    for _ in range(15):
        path.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", HUB, str(tmp_path)]) as hub:
            with _connect(path) as link:
                link.settimeout(WAIT)
                link.sendall(f"{client.last if client.last >= 0 else 0}\n".encode())
                client.text = b""
                wanted = len(client.ids) + chance.randrange(0, 2000)
                while len(client.ids) <= wanted:
                    client.take(link.recv(1 << 16))
                hub.send_signal(signal.SIGKILL)
                while rest := link.recv(1 << 16):
                    client.take(rest)
            hub.wait(WAIT)
    assert client.ids == list(range(1, len(client.ids) + 1))
    store = Store.open(tmp_path / "state.db")
    stored = [event.id for event in read(store, list_after(0, 10**6))]
    assert stored[: len(client.ids)] == client.ids
    store.close()


def _connect(path: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    wait_until(lambda: path.exists() and link.connect_ex(os.fspath(path)) == 0)
    return link

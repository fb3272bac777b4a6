"""Committed events to everybody who listens, as server-sent events.

The hub publishes what the store has committed; the HTTP layer streams to clients. There is
no queue per client: the latest batches lie in one ring, each encoded once, and a client is
only a position in the log. Who is further behind than the ring reaches (a client that
resumes, or one that reads too slowly) is read to from the store, page by page, until the
ring has it. So nothing is sent twice or left out, and a slow client holds no memory.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from bullpen.hub.store.events import encode, list_after
from bullpen.hub.store.store import READERS, Store
from bullpen.model.event import Event, to_json

BATCH_SECONDS = 0.01
HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 1000  # after which a browser comes back; the hub starts faster than that
RING_BYTES = 4 << 20
CHUNK_BYTES = 256 << 10  # at once to one client
PAGE_EVENTS = 500
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was published within a few milliseconds, ready to be sent."""

    events: tuple[Event, ...]
    pieces: tuple[bytes, ...]
    whole: bytes
    first: int
    last: int

    def after(self, position: int, agent: str | None) -> bytes:
        """The part of it that a client at that position is to get."""
        if agent is None and position < self.first:
            return self.whole
        return b"".join(
            piece
            for event, piece in zip(self.events, self.pieces, strict=True)
            if event.id > position and agent in (None, event.agent)
        )


class Feed:
    """Lives on one event loop. To be made before the first event is published."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last = store.last_id  # the highest id that was published
        self.floor = self.last  # the ring has everything that was published after it
        self.ring: deque[_Batch] = deque()
        self.is_closed = False
        self._ring_bytes = 0
        self._new: list[tuple[Event, bytes]] = []
        self._readers: set[_Reader] = set()
        self._flushed = float("-inf")
        self._is_due = False
        # Clients that catch up leave a reader to everybody else.
        self.pages = asyncio.Semaphore(READERS - 1)

    def publish(self, events: Iterable[Event]) -> None:
        """Hand on what was committed: all of it, in the order of ids, called on the loop. The
        first after a pause goes out at once, what follows within milliseconds goes together."""
        new = [event for event in events if event.id > self.last]
        if not new:
            return
        self.last = new[-1].id
        if not self._readers:
            self._forget()
            return
        self._new += [(event, _encode(event)) for event in new]
        if not self._is_due:
            self._is_due = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._flushed + BATCH_SECONDS), self._flush, loop)

    def stream(self, after: int | None, agent: str | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes for one client: all events, or those of one agent, after the id `after`, or
        from this call on, without an end. Each chunk is whole blocks.

        It begins with a block that has an id and no data, and so do the heartbeats: a client
        that is cut off before its first event, or whose events are rare, resumes where it was.
        An id that was never given means that the database is another one: the client gets an
        event `reset`, on which it should read everything anew, and then what comes from now on.
        """
        position = self.last if after is None else max(after, 0)
        return self._stream(_Reader(self, position, agent))

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        for reader in self._readers:
            reader.wake()

    async def _stream(self, reader: "_Reader") -> AsyncGenerator[bytes, None]:
        self._readers.add(reader)
        try:
            chunk = reader.begin()
            while not self.is_closed:
                yield chunk
                chunk = await reader.next_chunk()
        finally:
            self._readers.discard(reader)
            reader.end()

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due, self._flushed = False, loop.time()
        if not self._readers:
            self._forget()
            return
        for batch in _batches(self._new):
            self.ring.append(batch)
            self._ring_bytes += len(batch.whole)
            for reader in self._readers:
                reader.offer(batch)
        self._new.clear()
        while self._ring_bytes > RING_BYTES and len(self.ring) > 1:
            oldest = self.ring.popleft()
            self.floor = oldest.last
            self._ring_bytes -= len(oldest.whole)

    def _forget(self) -> None:
        """Nobody listens: who comes later finds it in the store."""
        self._new.clear()
        self.ring.clear()
        self._ring_bytes = 0
        self.floor = self.last


class _Reader:
    """One client: all that it wants up to `position` has been given to it."""

    def __init__(self, feed: Feed, position: int, agent: str | None) -> None:
        self.feed = feed
        self.position = position
        self.agent = agent
        self.loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent = self.loop.time()

    def begin(self) -> bytes:
        """The first block; says `reset` if the position is not of this log."""
        first = f"retry: {RETRY_MILLISECONDS}\n"
        # Committed and not published yet is of this log too: then the store knows it.
        if self.position > max(self.feed.last, self.feed.store.last_id):
            self.position = self.feed.last
            first += f'event: reset\ndata: {{"last":{self.position}}}\n'
        self._beat()
        return f"{first}id: {self.position}\n\n".encode()

    async def next_chunk(self) -> bytes:
        """What comes next, or a heartbeat when nothing came for long; empty at the end."""
        chunk = b""
        while not chunk and not self.feed.is_closed:
            if self.position < self.feed.floor:
                chunk = await self._read_page()
            elif self._has_more():
                chunk = self._take()
            elif self.loop.time() >= self._due():
                chunk = f": ping\nid: {self.position}\n\n".encode()
            else:
                self._waiter = self.loop.create_future()
                chunk = await self._waiter
        self._sent = self.loop.time()
        return chunk

    def offer(self, batch: _Batch) -> None:
        """Who waits has had everything before it, and gets it at once; others find it in the
        ring. What it does not want does not wake it."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        chunk = batch.after(self.position, self.agent)
        self.position = max(self.position, batch.last)
        if chunk:
            waiter.set_result(chunk)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(b"")

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _has_more(self) -> bool:
        ring = self.feed.ring
        return bool(ring) and ring[-1].last > self.position

    def _take(self) -> bytes:
        new = []
        for batch in reversed(self.feed.ring):
            if batch.last <= self.position:
                break
            new.append(batch)
        chunks, size = [], 0
        while new and size < CHUNK_BYTES:
            batch = new.pop()
            chunks.append(batch.after(self.position, self.agent))
            size += len(chunks[-1])
            self.position = batch.last
        return b"".join(chunks)

    async def _read_page(self) -> bytes:
        # What the ring had let go of by now was committed before: if the store shows nothing
        # up to there, it has expired, or is another agent's.
        floor = self.feed.floor
        async with self.feed.pages:
            last, chunk = await self.feed.store.read(partial(self._page, self.position))
        self.position = floor if last is None else last
        return chunk

    def _page(self, position: int, connection: sqlite3.Connection) -> tuple[int | None, bytes]:
        page = list_after(position, PAGE_EVENTS, agent=self.agent, most_bytes=PAGE_BYTES)
        events = page(connection)
        return (events[-1].id if events else None), b"".join(map(_encode, events))

    def _due(self) -> float:
        return self._sent + HEARTBEAT_SECONDS

    def _beat(self) -> None:
        """One timer for a silence, not one for each chunk: it looks when the last one was."""
        if self.loop.time() >= self._due():
            self.wake()
            self._timer = self.loop.call_later(HEARTBEAT_SECONDS, self._beat)
        else:
            self._timer = self.loop.call_at(self._due(), self._beat)


def _batches(new: list[tuple[Event, bytes]]) -> Iterator[_Batch]:
    """One, unless it would be too much to send at once."""
    start, size = 0, 0
    for end, (last, piece) in enumerate(new, 1):
        size += len(piece)
        if size >= CHUNK_BYTES or end == len(new):
            events, pieces = zip(*new[start:end], strict=True)
            yield _Batch(events, pieces, b"".join(pieces), events[0].id, last.id)
            start, size = end, 0


def _encode(event: Event) -> bytes:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {encode(to_json(event))}\n\n".encode()

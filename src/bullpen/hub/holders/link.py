"""The hub's side of the holders' sockets: one quiet connection to each, short ones to ask.

A link is told of its program's end, and that there is output if somebody listens; it does not
pass output on. Nothing here decides what an answer means. Frames: docs/holder-protocol.md.
"""

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bullpen.errors import BullpenError, Kind
from bullpen.holder.frames import BrokenFrameError, FrameReader, frame, json_frame, parse_json

ANSWER_SECONDS = 10.0
BUSY_SECONDS = 10.0
BUSY_PAUSE_SECONDS = 0.005
LISTENING: dict[str, Any] = {"read_only": True, "replay": False, "nudge": False}

Record = dict[str, Any]


class Link(asyncio.Protocol):
    """A connection that stays, and is told of the end once somebody follows it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.greeting: asyncio.Future[Record] = loop.create_future()
        self._on_end: Callable[[Record], None] | None = None
        self._on_lost: Callable[[], None] = _nothing
        self._end: Record | None = None
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        # Answers come in the order of the questions, also of those that nobody waits for any more.
        self._unanswered: deque[asyncio.Future[tuple[bytes, bytes]] | None] = deque()
        self._asking = asyncio.Lock()
        self._on_output: Callable[[], None] = _nothing
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except BrokenFrameError:
            if self._transport is not None:
                self._transport.abort()  # and so it is lost
            return
        for kind, payload in frames:
            self._handle(kind, payload)

    def _handle(self, kind: bytes, payload: bytes) -> None:
        if kind == b"H" and not self.greeting.done():
            self.greeting.set_result(dict(parse_json(payload)))
        elif kind == b"E":
            self._over = True
            self._end = dict(parse_json(payload))
            self._tell()
        elif kind in (b"O", b"e"):
            self._on_output()
        elif kind == b"D":  # too slow for the stream; who reads the log has missed nothing
            self._on_output()
            self._attach()
        elif kind in (b"K", b"F", b"S") and self._unanswered:
            answer = self._unanswered.popleft()
            if answer is not None and not answer.done():
                answer.set_result((kind, payload))

    def connection_lost(self, _error: Exception | None) -> None:
        gone = ConnectionResetError("the holder closed the connection")
        if not self.greeting.done():
            self.greeting.set_exception(gone)
            self.greeting.exception()  # perhaps nobody waits for it any more
        for answer in self._unanswered:
            if answer is not None and not answer.done():
                answer.set_exception(gone)
        self._over = True
        self._tell()

    def follow(self, on_end: Callable[[Record], None], on_lost: Callable[[], None]) -> None:
        """`on_end` gets the exit record, `on_lost` is for an end without; one of them, once.
        At once if it is over already: a program may end between two words of its holder."""
        self._on_end, self._on_lost = on_end, on_lost
        self._tell()

    def _tell(self) -> None:
        if self._over and self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            if self._end is not None:
                on_end(self._end)
            else:
                self._on_lost()

    async def listen(self, on_output: Callable[[], None]) -> None:
        """Be told whenever the program has written something; what it was is in its log."""
        self._on_output = on_output
        await self.ask(b"A", LISTENING)

    def _attach(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._unanswered.append(None)
            self._transport.write(json_frame(b"A", LISTENING))

    async def ask(self, kind: bytes, fields: Record | None = None) -> Record:
        """One request and its answer."""
        async with self._asking:
            if self._transport is None or self._transport.is_closing():
                raise ConnectionResetError("not connected")
            pending = asyncio.get_running_loop().create_future()
            self._unanswered.append(pending)
            self._transport.write(json_frame(kind, fields) if fields else frame(kind))
            async with asyncio.timeout(ANSWER_SECONDS):
                answered, payload = await pending
        answer = dict(parse_json(payload))
        if answered == b"F":
            raise BullpenError(str(answer["message"]), kind=Kind.COMMAND_FAILED)
        return answer

    def close(self) -> None:
        """Without telling anybody."""
        self._on_end = None
        if self._transport is not None:
            self._transport.abort()


async def connect(path: Path, seconds: float = ANSWER_SECONDS) -> Link:
    """A link to the holder at that socket, greeted. OSError or TimeoutError when there is none."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        _, link = await loop.create_unix_connection(Link, sock=await _connected(path))
        try:
            await asyncio.shield(link.greeting)
        except BaseException:
            link.close()
            raise
    return link


async def open_streams(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the holder at that socket. OSError when there is none."""
    try:
        async with asyncio.timeout(BUSY_SECONDS):
            return await asyncio.open_unix_connection(sock=await _connected(path))
    except TimeoutError as error:
        raise BullpenError(
            f"too many connect to {path.name} at once", hint="try again", kind=Kind.UNAVAILABLE
        ) from error


async def _connected(path: Path) -> socket.socket:
    """Until the caller has waited long enough. Whoever holds a busy program may have more callers
    than its socket keeps waiting: Linux says so at once, and it only means "try again"."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        while True:
            try:
                connection.connect(str(path))
            except BlockingIOError:
                await asyncio.sleep(BUSY_PAUSE_SECONDS)
            else:
                return connection
    except BaseException:
        connection.close()
        raise


async def type_into(path: Path, data: bytes) -> None:
    """Type to the program; returns when the holder has taken it."""
    async with _attached(path, {"replay": False, "nudge": False}) as (reader, writer):
        for start in range(0, len(data), 1 << 16):
            writer.write(frame(b"I", data[start : start + (1 << 16)]))
            await writer.drain()
        writer.write(frame(b"S"))
        frames = FrameReader()
        while True:
            for kind, payload in frames.feed(await _more(reader)):
                if kind == b"F":
                    raise BullpenError(
                        str(parse_json(payload)["message"]), kind=Kind.COMMAND_FAILED
                    )
                if kind == b"S":
                    return


async def replay(path: Path) -> tuple[Record, bytes]:
    """The greeting, and the bytes that bring a terminal of that size to the present."""
    options = {"read_only": True, "replay": True, "nudge": False}
    async with _attached(path, options) as (reader, _writer):
        frames = FrameReader()
        greeting: Record = {}
        while True:
            for kind, payload in frames.feed(await _more(reader)):
                if kind == b"H":
                    greeting = dict(parse_json(payload))
                elif kind == b"P":
                    return greeting, payload


async def ask_status(path: Path, seconds: float) -> Record:
    """What the holder says of itself, over a connection of its own: late answers confuse nobody."""
    link = await connect(path, seconds)
    try:
        async with asyncio.timeout(seconds):
            return await link.ask(b"S")
    finally:
        link.close()


class _attached(contextlib.AbstractAsyncContextManager[Any]):
    """A connection of its own, attached, for as long as the block takes."""

    def __init__(self, path: Path, fields: Record) -> None:
        self.path, self.fields = path, fields

    async def __aenter__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self.writer = await open_streams(self.path)
        self.writer.write(json_frame(b"A", self.fields))
        return reader, self.writer

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def _more(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(ANSWER_SECONDS):
        data = await reader.read(1 << 16)
    if not data:
        raise ConnectionResetError("the holder closed the connection")
    return data


def is_dead(path: Path) -> bool:
    """Whether nobody listens on that socket; proved by the kernel's refusal, not by silence."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False


async def request(path: Path, fields: Record) -> Record:
    """One request to a factory: a line in, a line out."""
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_unix_connection(sock=await _connected(path))
        try:
            writer.write(json.dumps(fields).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
    if not line:
        raise ConnectionResetError("the factory closed the connection")
    answer: Record = json.loads(line)
    return answer


def _nothing() -> None:
    """Until somebody wants to know."""

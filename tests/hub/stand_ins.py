"""Stand-ins for what lies outside the parts of a hub: holders, a program's own socket for messages,
an engine. Each is named by what it does."""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bullpen.engines.claude import Claude
from bullpen.holder.frames import FrameReader, frame, json_frame
from bullpen.model.agent import Agent

ENGINE = "told"


class ToldEngine(Claude):
    """Shows of messages what the test says, and counts how often it was looked for."""

    name = ENGINE

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self.looks = 0

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        self.looks += 1
        return self.shown & ids


class TypedHolder:
    """Takes what is typed, as a holder does; or refuses it, or says nothing of how it is."""

    def __init__(self) -> None:
        self.typed: list[bytes] = []
        self.refused = 0
        self.asked = 0  # how it is
        self.is_refusing = False
        self.is_silent = False
        self.last_input: float | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, owed = FrameReader(), 0
        writer.write(json_frame(b"H", {"pid": 1}))
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                for kind, payload in frames.feed(data):
                    if kind == b"I" and self.is_refusing:
                        self.refused += 1
                        writer.write(json_frame(b"F", {"message": "not now"}))
                    elif kind == b"I":
                        self.typed.append(payload)
                        self.last_input = time.time()  # it cannot tell who typed
                    elif kind == b"S":
                        self.asked += 1
                        owed += 1
                        if self.is_silent:
                            continue
                        # One that was stopped answers all that it was asked meanwhile.
                        writer.write(json_frame(b"S", {"last_input": self.last_input}) * owed)
                        owed = 0
                    elif kind == b"A":
                        writer.write(frame(b"K"))
        writer.close()


class Inlet:
    """A program's own socket for messages. While it is busy it takes connections and reads
    nothing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.connections = self.open = 0
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await self.is_free.wait()
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            while line := await reader.readline():
                self.lines.append(line)
        self.open -= 1
        writer.close()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """As a living holder has its directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class ObedientHolder:
    """Greets under a tag, and says yes to everything; what it was asked to do is in `done`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.done: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = os.getpid()
        writer.write(json_frame(b"H", {"tag": self.tag, "pid": pid, "child": pid}))
        frames = FrameReader()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                for kind, _payload in frames.feed(data):
                    self.done.append(kind)
                    writer.write(json_frame(b"K", {"for": kind.decode()}))
        writer.close()


@contextlib.asynccontextmanager
async def held_by(directory: Path, socket: Path, tag: str) -> AsyncIterator[ObedientHolder]:
    """A holder of that tag, alive and listening there."""
    holder = ObedientHolder(tag)
    with locked(directory):
        server = await asyncio.start_unix_server(holder.talk, str(socket))
        try:
            yield holder
        finally:
            server.close()
            socket.unlink(missing_ok=True)

"""One request to one of our own servers, for components and commands: over the home's socket, or
over a loopback port of a process that is this user's.

`request` is synchronous; who is on a loop calls it in a thread. `follow` is for event streams, and
asynchronous. Both are for servers that are ours: of others only `discovery` asks, and no more
than their `/status`.
"""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bullpen import credentials
from bullpen.component import ports
from bullpen.errors import BullpenError, Kind
from bullpen.paths import Home

ANSWER_BYTES = 8 << 20
LINE_BYTES = 1 << 20
HEAD_LINES = 100

Where = Path | int  # a socket or a port


class NoAnswerError(Exception):
    """Nobody listens, or no whole answer came."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, where: Where, seconds: float) -> None:
        super().__init__(ports.LOOPBACK, where if isinstance(where, int) else 80, timeout=seconds)
        self._where = where
        self._seconds = seconds

    def connect(self) -> None:
        if isinstance(self._where, int):
            self.sock = socket.create_connection((ports.LOOPBACK, self._where), self._seconds)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self._seconds)
            self.sock.connect(str(self._where))


def request(
    where: Where,
    method: str,
    target: str,
    body: Any = None,
    *,
    token: str = "",
    seconds: float = 5.0,
) -> tuple[int, Any]:
    """The status and the JSON of the answer.

    A token goes to a port only if a process of this user listens there: any program may take a
    free port and say that it is ours.
    """
    if token and isinstance(where, int) and not ports.is_ours(where):
        raise BullpenError(
            f"port {where} is not listened to by a process of yours alone",
            hint="nothing was sent to it",
            kind=Kind.DENIED,
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    with contextlib.closing(_Connection(where, seconds)) as connection:
        try:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES)
            return answer.status, json.loads(content)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise NoAnswerError(f"{where}: {type(error).__name__}") from error


def owner_token(home: Home) -> str:
    """What opens the home's servers; the hub makes it. One that others can read is refused."""
    found = credentials.load(home, credentials.API_TOKEN)
    if found is None:
        raise BullpenError(
            f"there is no {home.credentials / credentials.API_TOKEN}",
            hint="the hub makes it: bullpen hub start",
            kind=Kind.UNAVAILABLE,
        )
    return found


async def follow(path: Path, target: str, silence_seconds: float) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream at a socket, as they come: each with `kind` and `data`; the first,
    of kind `""`, says that the stream has begun. Raises `NoAnswerError` at its end."""
    writer = None
    try:
        async with asyncio.timeout(silence_seconds):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_BYTES)
            writer.write(f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            first = await reader.readline()
            for _ in range(HEAD_LINES):
                if await reader.readline() in (b"\r\n", b""):
                    break
        if b" 200 " not in first:
            raise NoAnswerError(f"{path}: {first[:80]!r}")
        yield {"kind": "", "data": {}}
        block = b""
        while True:
            async with asyncio.timeout(silence_seconds):
                size = int((await reader.readline()).strip() or b"0", 16)
                block += (await reader.readexactly(size + 2))[:-2]
            if size == 0:
                raise NoAnswerError(f"{path}: the stream ended")
            *whole, block = block.split(b"\n\n")
            for found in filter(None, map(_event, whole)):
                yield found
            if len(block) > ANSWER_BYTES:
                raise NoAnswerError(f"{path}: an event without an end")
    except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as error:
        raise NoAnswerError(f"{path}: {type(error).__name__}") from error
    finally:
        if writer is not None:
            writer.close()


def _event(block: bytes) -> dict[str, Any] | None:
    """A block of the stream; None for those without a name: heartbeats."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
    if b"event" not in fields or b"data" not in fields:
        return None
    return {"kind": fields[b"event"].decode(), "data": json.loads(fields[b"data"])}

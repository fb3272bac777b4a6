"""One conversation of two hubs: messages in their order, no faster than the other reads them.

Made by `peers`, used by `carry`. A message is sent in parts; of those at most `WINDOW` bytes are on
their way that the other side has not read, and an empty one counts, too. What does not arrive in
its order ends the channel: a terminal with a gap, or half an answer, must not look whole. Knows
nothing of NATS.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from bullpen.errors import BullpenError, Kind

PART_BYTES = 128 << 10  # below the server's limit of a message, with room for the head
WINDOW = 512 << 10
HEAD_BYTES = 512  # what a part costs whoever keeps it, besides its body
MESSAGE_BYTES = 32 << 20
SILENCE_SECONDS = 15.0

Head = dict[str, Any]
Say = Callable[[Head, bytes], Awaitable[None]]


class ChannelOverError(BullpenError):
    """There is nothing more to read or to write here. `stale` is the life that the other hub has,
    if it was taken for an earlier one: then nothing was done."""

    def __init__(self, reason: str, stale: str = "") -> None:
        super().__init__(reason, hint="bullpen fleet status", kind=Kind.UNAVAILABLE)
        self.stale = stale


class Channel:
    """One end. `say` sends a frame; `take` is given those that arrive, checked and in order."""

    def __init__(self, host: str, id: str, say: Say) -> None:
        self.host = host
        self.id = id
        self.heard = time.monotonic()
        self._say = say
        self._parts: deque[tuple[Head, bytes]] = deque()
        self._sent = self._read = self._confirmed = self._acknowledged = self._arrived = 0
        self._next = 0
        self._over: ChannelOverError | None = None
        self._change = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._over is not None

    async def send(self, head: Head, body: bytes = b"") -> None:
        """Send one message; waits until the other side has read enough of those before."""
        pieces = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)]
        for piece in pieces[:-1]:
            await self._send_part({"kind": "part"}, piece)
        await self._send_part(head, pieces[-1] if pieces else b"")

    async def _send_part(self, head: Head, body: bytes) -> None:
        while self._sent - self._acknowledged >= WINDOW:
            await self._wait()
        self._refuse_over()
        self._sent += len(body) + HEAD_BYTES
        await self._say(head, body)

    async def receive(self) -> tuple[Head, bytes]:
        """The next message; ChannelOverError when there is none."""
        pieces: list[bytes] = []
        while True:
            while not self._parts:
                self._refuse_over()
                await self._wait()
            head, body = self._parts.popleft()
            self._read += len(body) + HEAD_BYTES
            pieces.append(body)
            if sum(map(len, pieces)) > MESSAGE_BYTES:
                self.end("a message is too long")
                self._refuse_over()
            if self._read - self._confirmed >= WINDOW // 4 and not self.is_over:
                self._confirmed = self._read
                await self._say({"kind": "ack", "read": self._read}, b"")
            if head["kind"] != "part":
                return head, b"".join(pieces)

    def take(self, head: Head, body: bytes) -> None:
        """A frame has arrived. One that came before is dropped."""
        number = head["n"]
        if head["kind"] == "end":  # a hub that was restarted begins to count anew
            self.end(str(head.get("reason", "")), str(head.get("stale", "")))
            return
        if number < self._next or self.is_over:
            return
        if number > self._next:
            self.end(f"{self.host}: something was lost on the way")
            return
        self._next, self.heard = number + 1, time.monotonic()
        match head["kind"]:
            case "ack":
                self._acknowledged = max(self._acknowledged, min(int(head["read"]), self._sent))
            case "ping":
                return
            case _:
                self._arrived += len(body) + HEAD_BYTES
                if self._arrived - self._confirmed > 2 * WINDOW:
                    self.end(f"{self.host} sends more than it may")
                    return
                self._parts.append((head, body))
        self._wake()

    async def ping(self) -> None:
        """Ask whether the other side is there: a hub that does not know of this channel says so,
        and the server does if there is none."""
        await self._say({"kind": "ping"}, b"")

    async def say_end(self, reason: str) -> None:
        """Tell the other side that this one has left."""
        await self._say({"kind": "end", "reason": reason}, b"")

    def end(self, reason: str, stale: str = "") -> None:
        """No more: what has arrived can still be read. The first reason counts."""
        if self._over is None:
            self._over = ChannelOverError(reason, stale)
        self._wake()

    def _refuse_over(self) -> None:
        if self._over is not None:
            raise self._over

    async def _wait(self) -> None:
        self._refuse_over()
        self._change.clear()
        await self._change.wait()

    def _wake(self) -> None:
        self._change.set()

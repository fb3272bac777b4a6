"""What one actor may use of a server at once: requests under way, and bytes of their bodies.

Called by `component/guard` for every request, with the budget of whoever asks. A body that does
not fit waits unread: its sender is slowed down, the others are not. Knows no tokens.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, MutableMapping
from typing import Any

from starlette.types import Receive

from bullpen.component.answers import RefusedError
from bullpen.component.memory import FreedMemory

# Not counted: the server reads as much of any request before the application asks for it.
SMALL_BYTES = 1 << 16
WAIT_SECONDS = 10.0  # until the bodies before it are done with
BODY_SECONDS = 120.0  # for a whole body to arrive
RETRY_SECONDS = 1


class RequestBudget:
    """Of one actor. Lives on one event loop."""

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self.most_requests = most_requests
        self.most_bytes = most_bytes
        self.requests = 0
        self.bytes = 0
        self._freed = FreedMemory()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.contextmanager
    def one_request(self) -> Iterator[None]:
        """For as long as it is handled."""
        if self.requests >= self.most_requests:
            raise _busy(f"at most {self.most_requests} requests of one actor at once")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    async def take(self, size: int) -> None:
        """Wait until so many bytes are free, after those who came before."""
        if size > self.most_bytes:
            raise RefusedError(413, "too_large", f"a body has at most {self.most_bytes} bytes here")
        if not self._waiting and self.bytes + size <= self.most_bytes:
            self.bytes += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(turn)
        except TimeoutError:
            self._leave(size, turn)
            raise _busy(f"at most {self.most_bytes} bytes of one actor's bodies at once") from None
        except asyncio.CancelledError:
            self._leave(size, turn)
            raise

    def give_back(self, size: int) -> None:
        """They are done with. Those who wait get their turn."""
        self.bytes -= size
        self._freed.add(size)
        while self._waiting and self.bytes + self._waiting[0][0] <= self.most_bytes:
            size, turn = self._waiting.popleft()
            self.bytes += size
            turn.set_result(None)

    def _leave(self, size: int, turn: asyncio.Future[None]) -> None:
        """Who waited has given up, perhaps just when it had its turn."""
        if turn.done():
            self.give_back(size)
        else:
            self._waiting.remove((size, turn))
            self.give_back(0)


class Body:
    """`receive` of one request. Its bytes are taken from the budget before the first is read, and
    given back when the request has been handled."""

    def __init__(
        self, receive: Receive, headers: dict[bytes, str], budget: RequestBudget, most_bytes: int
    ) -> None:
        self._receive = receive
        self._budget = budget
        self._size = body_size(headers, most_bytes)
        self._taken = 0
        self._is_whole = self._size == 0
        self._deadline: float | None = None

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_whole:
            return await self._receive()
        if not self._taken and self._size > SMALL_BYTES:
            await self._budget.take(self._size)
            self._taken = self._size
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise RefusedError(408, "timeout", f"no whole body in {BODY_SECONDS:g} s") from None
        self._is_whole = message["type"] != "http.request" or not message.get("more_body")
        return message

    def close(self) -> None:
        """The request has been handled."""
        if self._taken:
            self._budget.give_back(self._taken)
            self._taken = 0


def body_size(headers: dict[bytes, str], most_bytes: int) -> int:
    """How many bytes may come: what the head says, or the most that a body may have."""
    if b"transfer-encoding" in headers:
        return most_bytes
    length = headers.get(b"content-length", "0")
    return int(length) if length.isdecimal() and len(length) <= 18 else 0


def _busy(message: str) -> RefusedError:
    error = RefusedError(503, "unavailable", message)
    error.headers = {"Retry-After": str(RETRY_SECONDS)}
    return error

"""`WS /api/terminal`: one agent's terminal between the page and the hub.

Binary messages are output and input. The page says as text how much output it has drawn; at
`WINDOW_BYTES` that it has not, nothing more is read, and a browser that stands still costs nothing
but its own picture. Read-only until the page takes over. Survives restarts of the hub: the agent's
holder goes on, and the whole screen is sent anew. Called by `web/routes`.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed

from bullpen.client import AsyncHub, terminals
from bullpen.component.answers import answer_error
from bullpen.errors import BullpenError, Kind

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

WINDOW_BYTES = 256 << 10
AGAIN_SECONDS = 0.5
ENDED, BAD = 4410, 4400  # the hub's own
LOGGED_OUT = 4401
TOO_SLOW = "too slow"  # how the hub begins its reason then

Side = Annotated[int, Field(ge=1, le=4096)]


class PageMessage(BaseModel):
    """A text message of the page."""

    model_config = ConfigDict(extra="forbid", strict=True)

    resize: Annotated[list[Side], Field(min_length=2, max_length=2)] | None = None
    ack: Annotated[int, Field(ge=0)] | None = None
    take: bool | None = None


class PageTerminal:
    """One terminal in one page."""

    def __init__(
        self,
        hub: AsyncHub,
        page: WebSocket,
        agent: str,
        cols: int,
        rows: int,
        is_logged_in: Callable[[], bool],
    ) -> None:
        self._hub = hub
        self._page = page
        self._agent = agent
        self._cols, self._rows = cols, rows
        self._is_logged_in = is_logged_in
        self._is_taken = False
        self._undrawn = 0
        self._line: ClientConnection | None = None
        self._has_room = asyncio.Event()
        self._attach_again = asyncio.Event()
        self._has_room.set()

    async def run(self) -> None:
        """Until the page leaves or the program has ended."""
        try:
            async with self._attached() as line:
                await self._page.accept()
                listening = asyncio.create_task(self._listen(), name="page's terminal")
                showing = asyncio.create_task(self._show_for_ever(line), name="terminal's output")
                try:
                    await asyncio.wait({listening, showing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (listening, showing):
                        task.cancel()
                    await asyncio.gather(listening, showing, return_exceptions=True)
        except BullpenError as error:
            await self._page.send_denial_response(answer_error(error))
            return
        for task in (listening, showing):
            failure = None if task.cancelled() else task.exception()
            # The page has left, in the middle of something.
            if failure and not isinstance(failure, WebSocketDisconnect | RuntimeError):
                raise failure

    def _attached(self) -> "contextlib.AbstractAsyncContextManager[ClientConnection]":
        call = terminals.attach(
            self._agent,
            rows=self._rows,
            cols=self._cols,
            read_only=not self._is_taken,
            sizes=True,
        )
        return self._hub.open(call)

    # ── output ──

    async def _show_for_ever(self, first: "ClientConnection") -> None:
        reason = await self._show(first, is_taken=False)
        while reason is None:
            is_taken = self._is_taken
            try:
                async with self._attached() as line:
                    reason = await self._show(line, is_taken)
            except BullpenError as error:
                if error.kind is not Kind.UNAVAILABLE:
                    reason = error.message
                    break
                await self._tell(away=error.message)
                await asyncio.sleep(AGAIN_SECONDS)
        await self._tell(ended=reason)
        await self._page.close(ENDED if self._is_logged_in() else LOGGED_OUT, reason[:100])

    async def _show(self, line: "ClientConnection", is_taken: bool) -> str | None:
        """All output of one attachment; why there is no more, or None: attach again."""
        self._attach_again.clear()
        if is_taken != self._is_taken:  # said while it was attached
            return None
        self._line = line
        await self._tell(resync=True)
        await self._tell(taken=is_taken)
        reading = asyncio.create_task(self._pass_on(line))
        attaching = asyncio.create_task(self._attach_again.wait())
        try:
            await asyncio.wait({reading, attaching}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            self._line = None
            for task in (reading, attaching):
                task.cancel()
            await asyncio.gather(reading, attaching, return_exceptions=True)

    async def _pass_on(self, line: "ClientConnection") -> str | None:
        while True:
            try:
                piece = await line.recv()
            except ConnectionClosed as closed:
                end = closed.rcvd
                break
            if not self._is_logged_in():
                return "you are logged out"
            if isinstance(piece, str):
                size = json.loads(piece)
                await self._tell(size=[size["cols"], size["rows"]])
                continue
            await self._page.send_bytes(piece)
            self._undrawn += len(piece)
            if self._undrawn >= WINDOW_BYTES:
                self._has_room.clear()
            await self._has_room.wait()
        if end is None or end.code != ENDED:
            await self._tell(away="the hub is away")
            return None
        # One that was dropped for being slow is shown again, once it has drawn what it has.
        return None if end.reason.startswith(TOO_SLOW) else end.reason

    async def _tell(self, **fields: Any) -> None:
        await self._page.send_text(json.dumps(fields))

    # ── what the page says ──

    async def _listen(self) -> None:
        while True:
            message = await self._page.receive()
            if message["type"] == "websocket.disconnect":
                return
            if not self._is_logged_in():
                await self._page.close(LOGGED_OUT, "you are logged out")
                return
            typed: bytes | None = message.get("bytes")
            if typed is not None:
                await self._type(typed)
                continue
            try:
                page_message = PageMessage.model_validate_json(message.get("text") or "")
            except ValidationError:
                await self._page.close(BAD, "a text message is {resize}, {ack} or {take}")
                return
            await self._obey(page_message)

    async def _type(self, typed: bytes) -> None:
        if self._is_taken and self._line is not None:
            with contextlib.suppress(ConnectionClosed):  # the other side says so
                await self._line.send(typed)

    async def _obey(self, message: PageMessage) -> None:
        if message.ack is not None:
            self._undrawn = max(0, self._undrawn - message.ack)
            if self._undrawn < WINDOW_BYTES:
                self._has_room.set()
        if message.resize is not None:
            self._cols, self._rows = message.resize
            if self._is_taken and self._line is not None:
                size = json.dumps({"cols": self._cols, "rows": self._rows})
                with contextlib.suppress(ConnectionClosed):
                    await self._line.send(size)
        if message.take is not None and message.take != self._is_taken:
            self._is_taken = message.take
            self._attach_again.set()

"""`AsyncHub`: runs calls against a hub, asynchronously, with httpx. For components and programs
of users.

Over the Unix socket of a home, or over TCP with a token. The same calls, answers and errors as
`Hub`. Never imported by commands: httpx takes longer to load than they take to run.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from bullpen.client.address import address_of, home_of
from bullpen.client.call import Call, Request, Stream
from bullpen.client.failures import TRIES, check_repeat, hub_is_down, refusal
from bullpen.client.follow import AGAIN_SECONDS, Following
from bullpen.client.plain_httpx import httpx
from bullpen.client.start import start_hub
from bullpen.client.streams import EventStream
from bullpen.client.web_socket import opening_errors, options
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hot import wire
from bullpen.text import seconds_text

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from bullpen.client.terminals import Terminal

T = TypeVar("T")

CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class RawAnswer:
    """An answer as it came, a refusal too."""

    status: int
    body: bytes
    content_type: str


class AsyncHub:
    """A hub: of this home, of another one, or at a `url` with a `token`. To be used with `async
    with`. A home's hub is started when it is down, unless `start` is false; one at a `url` is not.
    """

    def __init__(
        self,
        home: Home | Path | str | None = None,
        *,
        url: str = "",
        token: str = "",
        start: bool = True,
    ) -> None:
        self._address = None if url else address_of(home_of(home))
        self._url = url
        self._start_allowed = start
        token = token or ("" if url else os.environ.get("BULLPEN_TOKEN", ""))
        socket = self._address.socket if self._address else None
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(
            # A connection for each request: one that is kept would be that of a hub of before.
            transport=httpx.AsyncHTTPTransport(
                uds=socket, verify=socket is None, limits=httpx.Limits(max_keepalive_connections=0)
            ),
            base_url=url or "http://localhost",
            headers=self._headers,
            trust_env=False,
        )

    async def __aenter__(self) -> "AsyncHub":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of its connections."""
        await self._http.aclose()

    async def do(self, call: Call[T]) -> T:
        """The answer to a call."""
        answer = await self.fetch(call)
        if answer.status >= 400:
            raise refusal(answer.status, answer.body)
        return call.read(answer.body)

    async def fetch(self, call: Request) -> RawAnswer:
        """The answer as the hub gave it, for who passes it on. Raises only if none came."""
        tries = TRIES
        while True:
            tries -= 1
            try:
                with _wire_errors(call.seconds):
                    answer = await self._http.send(self._request(call))
            except wire.HubError as error:
                if check_repeat(error, call.may_repeat, tries, only_reads=call.only_reads):
                    await self._start(call)
                continue
            content_type = answer.headers.get("content-type", "")
            return RawAnswer(answer.status_code, answer.content, content_type)

    async def stream(self, call: Stream[T]) -> AsyncIterator[T]:
        """The values of a stream as they come. If the call may be sent again, those of a hub that
        dies half-way are followed by those of the next."""
        tries = TRIES
        while True:
            tries -= 1
            try:
                async for value in self._read(call):
                    yield value
            except wire.HubError as error:
                if check_repeat(error, call.again, tries, only_reads=call.only_reads):
                    await self._start(call)
            else:
                return

    async def follow(
        self, call: EventStream[T], patience_seconds: float | None = None
    ) -> AsyncIterator[T]:
        """The values of a stream to its end, or for ever. A hub that dies, restarts or is silent is
        asked again after the last value: nothing is missing, nothing comes twice. One that stays
        away is waited for, three minutes if nothing else is said."""
        following = Following(call, time.monotonic(), patience_seconds)
        while True:
            failure = None
            try:
                async for value in self.stream(following.rest()):
                    yield value
                    if following.is_over:
                        return
            except BullpenError as error:
                failure = error
            following.broke_off(failure, time.monotonic())
            await asyncio.sleep(AGAIN_SECONDS)

    @asynccontextmanager
    async def open(self, call: "Terminal") -> AsyncIterator["ClientConnection"]:
        """A connection to a terminal, closed at the end."""
        from websockets.asyncio.client import connect, unix_connect

        given = options({**call.headers, **self._headers})
        with opening_errors():
            if self._address:
                socket = self._address.socket
                line = await unix_connect(socket, f"ws://localhost{call.target}", **given)
            else:
                base = "ws" + self._url.removeprefix("http").rstrip("/")
                line = await connect(f"{base}{call.target}", proxy=None, **given)
        try:
            yield line
        finally:
            await line.close()

    async def _read(self, call: Stream[T]) -> AsyncIterator[T]:
        with _wire_errors(call.seconds):
            answer = await self._http.send(self._request(call), stream=True)
        try:
            if answer.status_code >= 400:
                with _wire_errors(call.seconds):
                    body = await answer.aread()
                raise refusal(answer.status_code, body)
            reader = call.reader()
            pieces = answer.aiter_bytes()
            while True:
                with _wire_errors(call.seconds):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                for value in reader.feed(piece):
                    yield value
        finally:
            await answer.aclose()

    def _request(self, call: Request) -> httpx.Request:
        headers = dict(call.headers)
        if call.body is not None:
            headers["content-type"] = "application/json"
        return self._http.build_request(
            call.method,
            call.target,
            content=call.data,
            headers=headers,
            timeout=httpx.Timeout(call.seconds, connect=CONNECT_SECONDS),
        )

    async def _start(self, call: Request) -> None:
        if self._address is None or not self._start_allowed or not call.starts_hub:
            raise hub_is_down()
        if self._address.is_agents_own:
            raise hub_is_down(is_agent=True)
        await asyncio.to_thread(start_hub, self._address.home, os.environ)


@contextmanager
def _wire_errors(seconds: float) -> Iterator[None]:
    """httpx's errors as those of `hot/wire`, which `check_repeat` knows."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise wire.NoHub(str(error)) from error
    except httpx.TimeoutException as error:
        raise wire.HubSlow(f"no answer from the hub within {seconds_text(seconds)}") from error
    except httpx.TransportError as error:
        raise wire.HubGone(str(error)) from error

"""A connection to the server as a user of the account in which tasks and messages are kept: made,
and made again when it is lost. `task_server` and `mail_server` are such; each has one of its own.

Whoever asks meanwhile waits. A time-out means that nobody knows: everything is asked again until
there is an answer, and may be asked twice.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError
from nats.js.errors import APIError

from bullpen.fleet.credential import Credential
from bullpen.fleet.link import (
    LOST,
    STORES_NOTHING,
    close,
    closed_is_lost,
    connect,
    end_if_cancelled,
)

log = logging.getLogger("bullpen.fleet")
T = TypeVar("T")

RETRY_SECONDS = 0.5
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 1.0
LONG_SECONDS = 10.0  # that somebody asks in vain before it is said
WRONG_REVISION = (10071, 10164)
NOT_STORED = 10077
WAITED = "408"  # nothing has come in the time that was asked for


class KeptConnection:
    """Of one hub. `what` is kept there, as the log says it."""

    what = ""

    def __init__(self, url: str, credential: Credential) -> None:
        self.host = credential.host
        self.is_connected = asyncio.Event()
        self._url = url
        self._credential = replace(credential, seed=credential.queue_seed)
        self._client: Client | None = None
        self._waiting: set[object] = set()  # those who have asked for long
        self._why_away = ""

    @property
    def trouble(self) -> str:
        """Why nothing is kept there; empty if all is well, or as far as anybody knows."""
        why = self._why_away or (STORES_NOTHING if self._waiting else "")
        return f"{self.what}: {why}" if why else ""

    async def prepare(self, client: Client) -> None:
        """Make what is needed at the server."""
        raise NotImplementedError

    async def begin(self, client: Client) -> None:
        """Subscribe; called for each connection before anybody uses it."""
        raise NotImplementedError

    def begun(self) -> None:
        """There is a new connection."""

    async def run(self) -> None:
        """Connected, until it is cancelled."""
        while True:
            try:
                with closed_is_lost():
                    await self._serve()
            except LOST as error:
                if (why := str(error)[:200]) != self._why_away:
                    log.warning(
                        f"no connection for {self.what} of the fleet", extra={"reason": why}
                    )
                self._why_away = why or type(error).__name__
            end_if_cancelled()
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve(self) -> None:
        closed = asyncio.Event()

        async def note_closed() -> None:
            closed.set()

        client = await connect(
            self._url,
            self._credential,
            closed=note_closed,
            objected=self._note_objection,
            prepare=self.prepare,
        )
        try:
            await self.begin(client)
            self._client = client
            self._why_away = ""
            self.is_connected.set()
            self.begun()
            # The library does not always say that it has closed a connection.
            while client.is_connected and not closed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await closed.wait()
        finally:
            self._client = None
            self.is_connected.clear()
            await close(client)

    def _note_objection(self, reason: str) -> None:
        if self._client is not None:  # else it is why there is no connection
            log.warning("the server of the fleet objects", extra={"reason": reason})

    async def surely(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Ask until there is an answer. An error that the server gives as its answer is raised, and
        MaxPayloadError for more than it takes."""
        begun, mark = time.monotonic(), object()
        try:
            while True:
                await self.is_connected.wait()
                client = self._client
                try:
                    if client is not None:
                        with closed_is_lost():
                            return await ask(client)
                except MaxPayloadError:
                    raise  # it will never be taken
                except APIError as error:
                    if error.err_code in WRONG_REVISION or is_there(error):
                        raise
                    extra = {"what": self.what, "reason": str(error)[:300]}
                    log.warning("the server refuses something", extra=extra)
                except LOST as error:
                    reason = str(error)[:200] or type(error).__name__
                    log.debug("asked again", extra={"reason": reason})
                if time.monotonic() - begun > LONG_SECONDS:
                    self._waiting.add(mark)
                end_if_cancelled()
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._waiting.discard(mark)

    async def pull_next(self, stream: str, consumer: str, seconds: float) -> Msg | None:
        """The next message of a stream for that consumer; None if none comes within that time."""
        await self.is_connected.wait()
        client = self._client
        if client is None:
            return None
        try:
            with closed_is_lost():
                message = await _pull(client, stream, consumer, seconds)
        except LOST:
            end_if_cancelled()
            await asyncio.sleep(RETRY_SECONDS)
            return None
        if message.subject.startswith(f"{stream}."):
            return message
        if (message.headers or {}).get("Status") != WAITED:  # refused at once, and again if asked
            await asyncio.sleep(RETRY_SECONDS)
        return None


async def publish_once(client: Client, subject: str, data: bytes, id: str = "") -> None:
    """To a stream that takes one message of each subject: fine if it is there. `id`: with one that
    the server has heard within two minutes it keeps nothing."""
    headers = {"Nats-Msg-Id": id} if id else None
    try:
        await client.jetstream().publish(subject, data, ANSWER_SECONDS, headers=headers)
    except APIError as error:
        if not is_there(error):
            raise


async def ask_api(client: Client, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """A request for which nats-py has no call, or one that looks at more than it has to."""
    answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), ANSWER_SECONDS)
    fields: dict[str, Any] = json.loads(answer.data)
    if "error" in fields:
        raise APIError.from_error(fields["error"])
    return fields


def is_there(error: APIError) -> bool:
    """There is a message under that subject already."""
    return error.err_code == NOT_STORED and "per subject" in (error.description or "")


async def _pull(client: Client, stream: str, consumer: str, seconds: float) -> Msg:
    """A message of that stream, or why there is none."""
    inbox = client.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    messages = await client.subscribe(inbox, cb=arrived.put)
    try:
        query = json.dumps({"batch": 1, "expires": int(seconds * 1e9)}).encode()
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", query, inbox)
        # Longer than the server waits: what it sends nobody else gets for a while.
        async with asyncio.timeout(seconds + ANSWER_SECONDS):
            return await arrived.get()
    finally:
        if not client.is_closed:
            await messages.unsubscribe()

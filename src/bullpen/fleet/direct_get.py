"""Messages of a stream, read without a consumer: the server's batched direct get (2.11), for which
nats-py has no call. Called by `presence` and `task_server`."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

ALL_READ, NOTHING_THERE = "204", "404"


@dataclass(frozen=True)
class Entry:
    """One message. That of a key that was taken away has no data. `time`: by the server's clock."""

    data: bytes | None
    revision: int
    time: float = 0.0


async def read_messages(
    client: "Client", stream: str, query: dict[str, Any], seconds: float
) -> AsyncIterator[tuple[str, Entry]]:
    """Each with its subject, within that time between two. ConnectionError for what the server says
    against it."""
    inbox = client.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    # Not `next_msg`: a connection that is closed would cancel whoever waits there.
    messages = await client.subscribe(inbox, cb=arrived.put)
    try:
        await client.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), inbox)
        while True:
            async with asyncio.timeout(seconds):
                message = await arrived.get()
            headers = message.headers or {}
            status = headers.get("Status")
            if status in (ALL_READ, NOTHING_THERE):
                return
            if status is not None:
                why = headers.get("Description", "")
                raise ConnectionError(f"the server does not say what is there: {status} {why}")
            data = None if "KV-Operation" in headers else message.data
            time = datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp()
            yield headers["Nats-Subject"], Entry(data, int(headers["Nats-Sequence"]), time)
    finally:
        if not client.is_closed:
            await messages.unsubscribe()

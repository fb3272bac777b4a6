"""Streams for the page: the hub's blocks as they come, across restarts of the hub.

Called by `web/routes`. A stream that breaks off is begun again after the last id that was passed
on: nothing is missing, nothing comes twice. In between the page is told that the hub is away.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from copy import copy
from typing import Any

from bullpen.client import AsyncHub
from bullpen.client.call import Stream
from bullpen.errors import BullpenError, Kind

AGAIN_SECONDS = 0.3
LIFE_SECONDS = 15.0
BLOCK_BYTES = 64 << 20
AWAY = b'event: hub\ndata: {"state":"away"}\n\n'
BACK = b'event: hub\ndata: {"state":"back"}\n\n'
STILL_AWAY = b": away\n\n"
ID = re.compile(rb"^id: ?(\S+)$", re.MULTILINE)


class Blocks:
    """Whole blocks of server-sent events, as they are."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        if len(self._rest) > BLOCK_BYTES:
            raise BullpenError("the hub sent a block without an end", kind=Kind.UNAVAILABLE)
        for block in blocks:
            yield block + b"\n\n"


def as_blocks(stream: Stream[Any], last_id: str) -> Stream[bytes]:
    """The same stream, unread, after that id."""
    raw: Stream[bytes] = copy(stream)
    raw.reader = Blocks
    raw.starts_hub = False
    if last_id:
        raw.headers = {**stream.headers, "last-event-id": last_id}
        raw.query = {name: value for name, value in stream.query.items() if name != "after"}
    return raw


async def follow(
    hub: AsyncHub, stream: Stream[Any], last_id: str, last: bytes = b""
) -> AsyncIterator[bytes]:
    """The blocks, until one of the kind `last`; without it for ever. The first error is raised;
    later a hub that is away is waited for."""
    over = b"event: " + last + b"\n"
    told_at = 0.0  # when the page was told that the hub is away; 0: it is not
    while True:
        try:
            async for block in hub.stream(as_blocks(stream, last_id)):
                if told_at:
                    told_at = 0.0
                    yield BACK
                match = ID.search(block)
                last_id = match[1].decode("latin-1") if match else last_id
                yield block
                if last and over in block:
                    return
        except BullpenError as error:
            if not last_id or error.kind is not Kind.UNAVAILABLE:
                raise
        now = time.monotonic()
        if now - told_at > LIFE_SECONDS:
            yield STILL_AWAY if told_at else AWAY
            told_at = now
        await asyncio.sleep(AGAIN_SECONDS)

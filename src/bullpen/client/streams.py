"""Reading a stream: bytes in, as they come; values out, as soon as they are whole. No I/O.

Used by the calls of `client/<noun>.py` that are streams, for both transports.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from bullpen.client.call import Stream
from bullpen.errors import BullpenError, Kind

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LINE_BYTES = 64 << 20


class StreamReader(Protocol[T_co]):
    """Takes the bytes of a stream, gives the values that are whole."""

    def feed(self, piece: bytes) -> Iterator[T_co]: ...


class Lines(Generic[T]):
    """A JSON value per line."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[T]:
        *lines, self._rest = _split(self._rest + piece, b"\n")
        for line in filter(None, lines):
            yield self._read(json.loads(line))


@dataclass(frozen=True)
class ServerSent:
    """One server-sent event; without a name it is only a sign of life."""

    name: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


class ServerSentEvents(Generic[T]):
    """Server-sent events; those that `read` gives None for are passed over."""

    def __init__(self, read: Callable[[ServerSent], T | None]) -> None:
        self._read = read
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[T]:
        *blocks, self._rest = _split(self._rest + piece, b"\n\n")
        for block in blocks:
            value = self._read(parse_event(block))
            if value is not None:
                yield value


class EventStream(Stream[T]):
    """A stream of server-sent events: it can be gone on with after the id of any of them. `last` is
    the name of the event after which it is over; without one it has no end."""

    def __init__(
        self,
        *request: Any,
        read: Callable[[ServerSent], T | None],
        last: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*request, reader=lambda: ServerSentEvents(read), **options)
        self.read = read
        self.last = last


def parse_event(block: bytes) -> ServerSent:
    """One event as it is sent; data that is no JSON object makes it a sign of life."""
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    try:
        data = json.loads(fields.get("data", ""))
    except ValueError:
        return ServerSent(id=fields.get("id", ""))
    is_object = isinstance(data, dict)
    return ServerSent(fields.get("event", ""), data if is_object else {}, fields.get("id", ""))


def _split(data: bytes, end: bytes) -> list[bytes]:
    parts = data.split(end)
    if len(parts[-1]) > LINE_BYTES:
        raise BullpenError("the hub sent a line without an end", kind=Kind.UNAVAILABLE)
    return parts

"""Following a stream across deaths of the hub: where it is, and what is asked for next. No I/O.

Used by `Hub.follow` and `AsyncHub.follow`, which wait and ask again.
"""

from copy import copy
from typing import Generic, TypeVar

from bullpen.client.streams import EventStream, ServerSent, ServerSentEvents
from bullpen.errors import BullpenError, Kind

T = TypeVar("T")

PATIENCE_SECONDS = 180.0  # with a hub that cannot be reached
AGAIN_SECONDS = 0.2


class Following(Generic[T]):
    """One stream, asked for as often as it breaks off. `patience_seconds`: how long a hub is
    waited for of which nothing is heard."""

    def __init__(
        self, stream: EventStream[T], now: float, patience_seconds: float | None = None
    ) -> None:
        self.is_over = False
        self._patience = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._stream = stream
        self._mark = ""
        self._reached = now
        self._was_heard = False

    def rest(self) -> EventStream[T]:
        """The call for what was not read yet."""
        call = copy(self._stream)
        call.starts_hub = True
        call.reader = lambda: ServerSentEvents(self._read)
        if self._mark:
            call.headers = {**call.headers, "last-event-id": self._mark}
            call.query = {name: value for name, value in call.query.items() if name != "after"}
        return call

    def broke_off(self, error: BullpenError | None, now: float) -> None:
        """It ended before its end, with an error or without. Raises if that is final: a refusal,
        or a hub of which nothing was heard for too long."""
        if self._was_heard:
            self._reached, self._was_heard = now, False
        if error is not None and error.kind is not Kind.UNAVAILABLE:
            raise error
        if now - self._reached > self._patience:
            raise error or BullpenError(
                "the hub ends the stream again and again",
                hint="bullpen hub logs",
                kind=Kind.UNAVAILABLE,
            )

    def _read(self, sent: ServerSent) -> T | None:
        self._was_heard = True
        self._mark = sent.id or self._mark
        self.is_over = bool(self._stream.last) and sent.name == self._stream.last
        return self._stream.read(sent)

"""Calls of `/events` and `/timeline`: what happened, in pages and as a stream. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path
from bullpen.client.streams import EventStream, ServerSent
from bullpen.model.event import Event

if TYPE_CHECKING:
    from bullpen.model.event_page import EventPage
    from bullpen.model.timeline import Timeline

RESET = "reset"  # the id to go on from is not of this history


def list_events(
    after: int = 0,
    limit: int | None = None,
    agent: str | None = None,
    before: int | None = None,
) -> "Call[EventPage]":
    """Events after an id, oldest first; an empty page is the end for now. With `before` the newest
    below that id, the newest first; `last` is then the `before` of the next page."""
    query = {"after": after, "limit": limit, "agent": agent, "before": before}
    return Call("GET", path("events"), query, read=Model("event_page.EventPage"))


def get_timeline(since_seconds: float | None = None) -> "Call[Timeline]":
    """Who came into which state when, in the last so many seconds."""
    query = {"since_seconds": since_seconds}
    return Call("GET", path("timeline"), query, read=Model("timeline.Timeline"))


def stream_events(
    after: int | None = None, agent: str | None = None, *, heartbeats: bool = False
) -> EventStream[Event]:
    """Events after an id, else from now on, without an end. One of kind `reset` says that `after`
    is not of this history. With `heartbeats` the stream begins with an event of kind `""`, and
    one comes every 15 seconds in which nothing happens; its id is where the stream is."""

    def read(sent: ServerSent) -> Event | None:
        if sent.name and "kind" in sent.data:
            return Event(**{name: sent.data[name] for name in Event.__slots__})
        position = int(sent.id) if sent.id.isdecimal() else 0
        if sent.name == RESET:
            return Event(position, 0.0, RESET, "", {})
        return Event(position, 0.0, "", "", {}) if heartbeats else None

    query = {"after": after, "agent": agent}
    return EventStream("GET", path("events", "stream"), query, read=read)

"""A page of the event log, as `GET /events` answers it. Apart from `event`, which is light.

Made by `hub/http/events.py`, read by `client`. Pure.
"""

from bullpen.model.event import Event
from bullpen.model.value import Value


class EventPage(Value):
    """Events in order; `last` is where the next page begins."""

    events: tuple[Event, ...]
    last: int

"""Who was in which state when, out of recorded events. Pure.

`hub/http/events.py` serves it, the page draws it.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from bullpen.model.event import Event
from bullpen.model.value import Value

MOST_CHANGES = 5_000  # as many as a page draws at once
MOST_BEFORE = 2_000  # looked through for the state that somebody was in at first


class StateChange(Value):
    """An agent came into a state. `state` is as it was recorded."""

    at: float
    state: dict[str, Any]


class Track(Value):
    """One agent's changes, the oldest first; the first may have been before the time asked for."""

    agent: str
    changes: tuple[StateChange, ...]


class Timeline(Value):
    """Changes of state of all agents that had any. `since` is later than asked for when there were
    too many."""

    since: float
    tracks: tuple[Track, ...]


def make_timeline(newest_first: Iterable[Event], since: float) -> Timeline:
    """The changes since that time. Takes no more of the events than it needs."""
    changes: dict[str, list[StateChange]] = defaultdict(list)
    unknown: set[str] = set()  # had a change, but what they were in before is not known yet
    taken = before = 0
    for event in newest_first:
        if not isinstance(event.data.get("state"), dict):
            continue  # what another version wrote
        if event.time >= since and taken < MOST_CHANGES:
            taken += 1
            unknown.add(event.agent)
            changes[event.agent].append(_change(event))
            continue
        if event.time >= since:
            since = min(each[-1].at for each in changes.values())
            break
        before += 1
        if event.agent in unknown:
            unknown.remove(event.agent)
            changes[event.agent].append(_change(event))
        if not unknown or before == MOST_BEFORE:
            break
    tracks = (Track(agent=name, changes=tuple(changes[name][::-1])) for name in sorted(changes))
    return Timeline(since=since, tracks=tuple(tracks))


def _change(event: Event) -> StateChange:
    return StateChange(at=event.time, state=event.data["state"])

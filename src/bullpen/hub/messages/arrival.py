"""Decides whether a message that was handed over has to be handed over again. Pure.

Called by `deliver` after it has looked for the message in the engine's transcript. The decision
rests on what was observed before that look began: what an agent shows after the look, it may
show before it turns idle.
"""

from dataclasses import dataclass

from bullpen.model.state import Idle, View

SHOWN_SECONDS = 10.0  # idle for so long after a hand-over, it has not arrived
UNREAD_SECONDS = 0.2


@dataclass(frozen=True)
class BeforeLook:
    """What was true when the look at the transcript began."""

    view: View
    is_unread: bool  # its program has yet to read what was written to its socket
    time: float


@dataclass(frozen=True)
class LookAgain:
    """In so many seconds; None: when something changes."""

    seconds: float | None


@dataclass(frozen=True)
class HandOverAgain:
    """The message did not arrive: hand it over again."""


def plan_missing(before: BeforeLook, view: View, last_sent: float) -> LookAgain | HandOverAgain:
    """What to do about messages that the transcript does not show. `view` is how the agent is
    after the look; `last_sent` is when the last of them was handed over."""
    if before.is_unread:
        # Its program is stopped, or the machine is busy. It must not get the message twice.
        return LookAgain(UNREAD_SECONDS)
    if not isinstance(before.view.state, Idle):
        return LookAgain(None)
    if view != before.view:
        return LookAgain(0.0)
    left = max(before.view.since, last_sent) + SHOWN_SECONDS - before.time
    return LookAgain(left) if left > 0 else HandOverAgain()

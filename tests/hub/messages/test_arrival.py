"""Whether what was handed over has to be handed over again: a table."""

import pytest

from bullpen.hub.messages.arrival import (
    SHOWN_SECONDS,
    UNREAD_SECONDS,
    BeforeLook,
    HandOverAgain,
    LookAgain,
    plan_missing,
)
from bullpen.model.state import Idle, State, View, Working

NOW = 1000.0
LONG_AGO, JUST_NOW = NOW - 2 * SHOWN_SECONDS, NOW - 1.0


def view(state: State, since: float = LONG_AGO) -> View:
    return View(run="r", state=state, since=since, decided_by="hook")


@pytest.mark.parametrize(
    ("before", "after", "is_unread", "last_sent", "expected"),
    [
        (view(Idle()), view(Idle()), False, LONG_AGO, HandOverAgain()),
        (view(Idle()), view(Idle()), False, JUST_NOW, LookAgain(SHOWN_SECONDS - 1.0)),
        (view(Idle(), JUST_NOW), view(Idle(), JUST_NOW), False, 5.0, LookAgain(SHOWN_SECONDS - 1)),
        (view(Idle()), view(Idle()), True, LONG_AGO, LookAgain(UNREAD_SECONDS)),
        (view(Working()), view(Working()), False, LONG_AGO, LookAgain(None)),
        # It changed during the look: that look does not count.
        (view(Working()), view(Idle()), False, LONG_AGO, LookAgain(None)),
        (view(Idle()), view(Working()), False, LONG_AGO, LookAgain(0.0)),
        (view(Idle()), view(Idle(), NOW), False, LONG_AGO, LookAgain(0.0)),
    ],
)
def test_g2_only_a_look_at_an_agent_that_was_and_stays_idle_proves_a_loss(
    before: View,
    after: View,
    is_unread: bool,
    last_sent: float,
    expected: LookAgain | HandOverAgain,
) -> None:
    assert plan_missing(BeforeLook(before, is_unread, NOW), after, last_sent) == expected

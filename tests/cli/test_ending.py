"""What is said while agents take their time to end."""

import pytest

from bullpen.cli.ending import fold_endings, words
from bullpen.model.event import Event

STOPPING = Event(7, 100.0, "agent.stopping", "amy", {"grace": 10.0})
STOPPED = Event(9, 104.0, "agent.stopped", "amy", {"signal": 15})


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([STOPPING], {"amy": 110.0}),
        ([STOPPING, STOPPED], {}),
        ([Event(5, 98.0, "agent.stopping", "bob", {"grace": 60.0})], {}),  # another's
        ([STOPPING, Event(8, 102.0, "agent.stopping", "amy", {"grace": 1.0})], {"amy": 103.0}),
        # One that takes tasks and leaves after its task: it is not killed.
        ([Event(7, 100.0, "agent.stopping", "amy", {"until": 130.0, "force": False})], {}),
    ],
)
def test_b8_who_is_ending_is_what_the_hub_recorded(
    events: list[Event], ending: dict[str, float]
) -> None:
    assert fold_endings({}, events, 99.0) == ending


def test_b8_it_is_said_who_is_waited_for_and_until_when() -> None:
    assert words({"amy": 110.0}, 101.2) == "waiting for amy to end; killed in 9s"
    two = {"amy": 110.0, "bob": 105.0}
    assert words(two, 101.2) == "waiting for amy, bob to end; killed in 9s"
    many = {f"a{number}": 110.0 for number in range(40)}
    assert words(many, 101.2) == "waiting for 40 agents to end; killed in 9s"
    assert words({"amy": 110.0}, 110.5) == "waiting for amy to end"
    assert words({}, 101.2) == ""

"""Who was in which state when: from the state that each was in at first, within bounds (V10)."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.model import timeline
from bullpen.model.event import Event
from bullpen.model.timeline import make_timeline


def change(number: int, at: float, agent: str, state: Any) -> Event:
    return Event(number, at, "agent.state", agent, {"state": {"state": state}})


LOG = [
    change(1, 10, "amy", "idle"),
    change(2, 20, "bob", "working"),
    change(3, 110, "amy", "working"),
    change(4, 120, "amy", "idle"),
]


def tracks(events: list[Event], since: float) -> dict[str, list[tuple[float, str]]]:
    made = make_timeline(reversed(events), since)
    return {
        one.agent: [(each.at, each.state["state"]) for each in one.changes] for one in made.tracks
    }


def test_v10_who_changed_is_shown_from_the_state_before_on() -> None:
    assert tracks(LOG, 100) == {"amy": [(10, "idle"), (110, "working"), (120, "idle")]}
    assert tracks(LOG, 0) == {
        "amy": [(10, "idle"), (110, "working"), (120, "idle")],
        "bob": [(20, "working")],
    }
    assert tracks(LOG, 200) == {}
    assert tracks([], 0) == {}


def test_v10_what_another_version_wrote_is_passed_over() -> None:
    odd = [
        Event(5, 130, "agent.state", "amy", {}),
        Event(6, 131, "agent.state", "amy", {"state": 1}),
    ]
    assert tracks([*LOG, *odd], 100) == tracks(LOG, 100)


def test_v10_of_too_many_changes_the_newest_are_shown_and_it_says_since_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "MOST_CHANGES", 3)
    made = make_timeline((change(n, n, "amy", "idle") for n in range(100, 0, -1)), 0)
    assert made.since == 98
    assert [one.at for one in made.tracks[0].changes] == [98, 99, 100]


def test_v10_the_search_for_the_state_before_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_BEFORE", 50)

    def endless() -> Iterator[Event]:
        yield change(10**6, 1000, "amy", "idle")
        for number in itertools.count():
            yield change(10**5 - number, 500 - number, "bob", "idle")

    made = make_timeline(endless(), 900)
    assert [(one.agent, len(one.changes)) for one in made.tracks] == [("amy", 1)]

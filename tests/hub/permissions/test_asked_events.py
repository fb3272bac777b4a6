"""Which events a starting hub reads of the approvals of before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.hub.permissions.asked_events import (
    ASKED,
    ENDED,
    NEWEST,
    REVIEWED,
    asked_key,
    ended_key,
    list_asked,
)
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft, Event
from tests.hub.store.calls import put, read


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "state.db")
    yield opened
    opened.close()


def asked(ask: str) -> Draft:
    return Draft(1.0, ASKED, "amy", {"run": "r", "ask": ask}, key=asked_key(f"r:{ask}"))


def ended(ask: str) -> Draft:
    return Draft(1.0, ENDED, "amy", {"run": "r", "ask": ask}, key=ended_key(f"r:{ask}"))


def words(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind, event.data["ask"]) for event in events]


def test_q4_what_is_open_is_read_however_old_and_of_what_ended_the_last(store: Store) -> None:
    review = Draft(1.0, REVIEWED, "amy", {"run": "r", "ask": "open", "reason": "why"})
    put(store, asked("open"), review)
    names = [f"a{number}" for number in range(3 * NEWEST)]
    for name in names:
        put(store, asked(name), ended(name))
    put(store, asked("late"))
    # One that was asked before all of the newest, and ended after them.
    put(store, ended("open-before"))
    found = words(read(store, list_asked(2)))
    assert found[:2] == [(ASKED, "open"), (REVIEWED, "open")]
    assert (ASKED, "late") in found
    last = names[-1]
    assert (ASKED, last) in found
    assert (ENDED, last) in found
    # Every one that is not open is there with its end: none looks open that is not.
    open_ones = {ask for kind, ask in found if kind == ASKED} - {
        ask for kind, ask in found if kind == ENDED
    }
    assert open_ones == {"open", "late"}
    assert len(found) <= 2 * NEWEST + 10


def test_q4_no_approvals_no_events(store: Store) -> None:
    assert read(store, list_asked(200)) == []

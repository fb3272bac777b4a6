"""The events of a task's stream are typed, and no version of the hub can break their reading."""

from dataclasses import asdict, fields

import pytest

from bullpen.client.task_events import READERS, EndEvent, OtherEvent, StateEvent, read_event
from bullpen.engines.lines import (
    Line,
    ModelText,
    Partial,
    Retrying,
    RunOutcome,
    TokensSpent,
    ToolDenied,
    ToolUsed,
    TurnBegun,
)
from bullpen.hub.tasks.stream import NAMES, describe

LINES: list[Line] = [
    TurnBegun("c-1", ("no server of tools",)),
    ModelText("hello", is_line=True),
    Partial("hel", is_first=True),
    ToolUsed("Bash", "pytest -x"),
    TokensSpent(18_000, 400, "a"),
    Retrying(2, 1.5, "529"),
    ToolDenied("Bash"),
    RunOutcome("engine_error", "", "c-1", why="500"),
]


def test_every_line_that_the_hub_tells_is_tried_here() -> None:
    assert {type(line) for line in LINES} == set(NAMES)
    assert {*NAMES.values(), "state", "end"} == set(READERS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: NAMES[type(line)])
def test_t13_an_event_has_what_the_hub_says(line: Line) -> None:
    shown = describe(line)
    assert shown is not None
    name, sent = shown
    event = read_event(name, {key: _as_json(value) for key, value in sent.items()}, "3.12.0")
    assert (event.name, event.run, type(event.data) is OtherEvent) == (name, 3, False)
    read = asdict(event.data)
    assert read == {key: sent[key] for key in read}


def test_t13_moves_and_the_end_are_events_of_their_own() -> None:
    moved = read_event("state", {"state": "queued", "limited_until": 12.5})
    assert moved.data == StateEvent("queued", 12.5)
    assert read_event("state", {"state": "working"}).data == StateEvent("working", None)
    sent = {"task_id": "t-1", "state": "completed", "output": "done", "prompt": "x"}
    over = read_event("end", sent)
    assert (over.data, over.fields) == (EndEvent("t-1", "completed", "done"), sent)


@pytest.mark.parametrize("name", [*READERS, "of a later version", ""])
@pytest.mark.parametrize("value", [None, [], {}, "x", -1, True])
def test_t13_what_is_missing_or_of_another_kind_is_no_error(name: str, value: object) -> None:
    data = read_event(name, {}).data
    assert data == type(data)()
    known = [field.name for field in fields(data)]
    read_event(name, {**dict.fromkeys(known, value), "another": value})


def _as_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value

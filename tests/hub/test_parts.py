"""What the parts of a hub are told: a failure in one of them is that part's alone."""

from dataclasses import replace

import pytest

from bullpen.model.event import Event
from tests.hub.parts import Parts, in_parts


def test_a_part_that_fails_keeps_no_other_from_its_events(caplog: pytest.LogCaptureFixture) -> None:
    async def story(parts: Parts) -> None:
        heard: list[Event] = []

        def fail(_events: list[Event]) -> None:
            raise ValueError("a bug")

        first, *others = parts.hub.parts
        parts.hub.parts = (  # type: ignore[assignment]
            replace(first, notice=fail),
            *others,
            replace(first, notice=heard.extend, leave=None),
        )
        event = Event(1, 1.0, "hub.started", "", {})
        parts.hub.notice([event])
        assert heard == [event]
        assert "could not be handed on" in caplog.text

    in_parts(story)

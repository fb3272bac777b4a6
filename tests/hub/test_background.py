"""Work that nobody awaits."""

import asyncio
import logging
import warnings

import pytest

from bullpen.hub.background import Background


def test_what_is_cancelled_before_it_begins_is_no_warning() -> None:
    async def work() -> None:
        raise AssertionError("it never began")

    async def main() -> None:
        task = Background().begin(work(), "work")
        task.cancel()
        await asyncio.wait({task})

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(main())
    assert warned == []


def test_what_fails_is_logged_with_its_name_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        raise ValueError("a bug")

    async def main() -> Background:
        background = Background()
        await background.begin(work(), "some work")
        await asyncio.sleep(0)
        return background

    with caplog.at_level(logging.ERROR):
        background = asyncio.run(main())
    assert not background.tasks
    (record,) = caplog.records
    assert record.__dict__["what"] == "some work"
    assert "a bug" in caplog.text

"""What was used over time: steps without gaps, also when clocks are set, and nothing lost (V10)."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.usage_series import (
    MOST_NAMES,
    UsagePoint,
    make_series,
    start_of,
    starts_between,
)


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone()


# The clock is set on these days: 25, 23 and 24.5 hours; in Nepal never.
ZONES = {
    "Europe/Berlin": ("2026-10-25", 100),
    "America/New_York": ("2026-03-08", 92),
    "Australia/Lord_Howe": ("2026-04-05", 98),
    "Asia/Kathmandu": ("2026-11-17", 96),
}


@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_v10_every_moment_of_a_day_is_in_one_of_its_steps(zone: str) -> None:
    day, quarters = ZONES[zone]
    now = local(f"{day}T12:00")
    begin = int(local(f"{day}T00:00").timestamp())
    moments = range(begin, begin + quarters * 900, 450)
    for step in ("15m", "1h"):
        starts = starts_between(day, now, step)
        of_moments = [start_of(datetime.fromtimestamp(at).astimezone(), step) for at in moments]
        assert list(dict.fromkeys(of_moments)) == list(starts)
    assert len(starts_between(day, now, "15m")) == quarters


@pytest.mark.parametrize(("step", "most"), [("15m", 2 * 96), ("1h", 8 * 24), ("1d", 400)])
@pytest.mark.parametrize("zone", ["UTC"], indirect=True)
def test_v10_what_is_too_long_ago_is_left_out(zone: str, step: str, most: int) -> None:
    now = local("2026-11-17T23:59:59")
    for first in ("1970-01-01", "2020-02-29", ""):
        starts = starts_between(first, now, step)  # type: ignore[arg-type]
        assert len(starts) == most
        assert starts[-1].startswith("2026-11-17")
    assert starts_between("2026-11-17", now, "1d") == ("2026-11-17",)


POINT = st.builds(
    UsagePoint,
    st.sampled_from([f"a{n}" for n in range(12)]),
    st.sampled_from(["2026-11-15", "2026-11-16", "2026-11-17"]),
    st.integers(0, 1 << 40),
    st.integers(0, 1000).map(lambda cents: cents / 4),
)


@given(st.lists(POINT))
def test_v10_series_and_their_rest_are_all_that_was_used(points: list[UsagePoint]) -> None:
    starts = ("2026-11-15", "2026-11-16", "2026-11-17")
    series = make_series("agent", "1d", starts, points)
    lines = [*series.lines, *([series.rest] if series.rest else [])]
    for at, start in enumerate(starts):
        own = [point for point in points if point.start == start]
        assert sum(line.tokens[at] for line in lines) == sum(point.tokens for point in own)
        assert sum(line.usd[at] for line in lines) == sum(point.usd for point in own)
    costs = [sum(line.usd) for line in series.lines]
    assert costs == sorted(costs, reverse=True)
    assert len(costs) == min(MOST_NAMES, len({point.name for point in points}))


def test_v10_what_lies_outside_of_the_time_is_not_shown() -> None:
    series = make_series("pod", "1d", ("2026-11-17",), [UsagePoint("p", "2026-11-16", 5, 1.0)])
    assert (series.lines, series.rest) == ((), None)

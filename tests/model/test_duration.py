from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.duration import parse, to_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("1d2h3m4s", 93_784),
        ("0s", 0),
        ("120m", 7200),
    ],
)
def test_r2_durations_as_people_write_them(text: str, seconds: int) -> None:
    assert parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "90", "1.5h", "-5m", "5 m", "5M", "30m1h", "m", "tomorrow", "1h30", "٣s", "9" * 30 + "s"],
)
def test_r2_anything_else_is_an_error_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration · e\.g\. 90s, 10m, 1h30m") as caught:
        parse(text)
    assert text[:40] in str(caught.value)


@given(st.integers(min_value=0, max_value=10**9))
def test_the_text_of_a_duration_reads_back(seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    assert parse(to_text(duration)) == duration


def test_the_text_is_the_short_form() -> None:
    assert to_text(timedelta(seconds=5400)) == "1h30m"
    assert to_text(timedelta()) == "0s"

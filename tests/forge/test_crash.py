"""A director of GitHub that is killed at every step: D2, one branch, one pull, one comment each."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.directors.replay import killed, undisturbed
from tests.forge.lives import Life, Quiet, check


@pytest.fixture
def life() -> Iterator[Life]:
    with contextlib.ExitStack() as stack:
        yield Life(stack)


@pytest.mark.slow
@pytest.mark.storm
def test_d2_a_director_that_is_killed_once_does_nothing_twice(life: Life, tmp_path: Path) -> None:
    """At the first steps; all of them are in the storm."""
    wanted = undisturbed(life, tmp_path / "whole")
    check(wanted)
    steps = killed(life, tmp_path / "killed")
    for _ in range(2):
        name, picture = next(steps)
        assert picture == wanted, name


@pytest.mark.slow
def test_d2_a_director_that_is_killed_shows_one_status(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        quiet = Quiet(stack)
        wanted: Any = undisturbed(quiet, tmp_path / "whole")
        assert len(wanted["issues"]) == 1
        for name, picture in killed(quiet, tmp_path / "killed"):
            assert picture == wanted, name


@pytest.mark.storm
def test_d2_a_director_that_is_killed_at_any_step_does_nothing_twice(
    life: Life, tmp_path: Path
) -> None:
    wanted = undisturbed(life, tmp_path / "whole")
    check(wanted)
    hit = 0
    for name, picture in killed(life, tmp_path / "killed"):
        assert picture == wanted, name
        hit += 1
    assert hit > 60

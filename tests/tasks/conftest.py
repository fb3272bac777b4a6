"""Fixtures of the tests of tasks; `desk.py` says what a desk is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.team import made_team
from tests.tasks.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Of the stand-in: fast."""
    with made_team(tmp_path, "standin") as team:
        yield Desk(team)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Desk]:
    """Of the real Claude Code."""
    with made_team(tmp_path, "real") as team:
        yield Desk(team)


@pytest.fixture(params=["standin", "real"])
def any_desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """Of the one, then of the other."""
    with made_team(tmp_path, request.param) as team:
        yield Desk(team)

"""Fixtures of the tests of tasks; `desk.py` says what a desk is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.tasks.desk import Desk, made_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Of the stand-in: fast."""
    with made_desk(tmp_path) as made:
        yield made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Desk]:
    """Of the real Claude Code."""
    with made_desk(tmp_path, "real") as made:
        yield made


@pytest.fixture(params=["standin", pytest.param("real", marks=pytest.mark.storm)])
def any_desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """Of the one, then of the other."""
    with made_desk(tmp_path, request.param) as made:
        yield made

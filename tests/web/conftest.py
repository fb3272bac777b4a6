"""Fixtures of the tests of the web view."""

from collections.abc import Iterator

import pytest

from tests.hub.pen import made_pen
from tests.web.inside import InsideView, made_view
from tests.web.running import RunningView, running_view


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InsideView]:
    """One for all tests of a file; no hub answers it."""
    with made_view(tmp_path_factory.mktemp("view") / "home") as made:
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[RunningView]:
    """A view and its hub, for all tests of a file that leave both running."""
    with made_pen() as pen, running_view(pen) as made:
        yield made


@pytest.fixture
def own_view() -> Iterator[RunningView]:
    """The same for one test."""
    with made_pen() as pen, running_view(pen) as made:
        yield made

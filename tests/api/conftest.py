"""Fixtures of the tests of the API: a hub in this process, or in one of its own."""

from collections.abc import Iterator

import pytest

from bullpen.paths import HUB
from tests.api.agents import start_agent
from tests.api.inside import Inside, made_inside
from tests.hub.pen import Pen, made_pen


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    """A hub with two agents, amy and bob, for all tests of a file that leave it running."""
    with made_pen() as pen, made_inside(pen) as made:
        for name in ("amy", "bob"):
            start_agent(made.socket, pen, name)
        yield made


@pytest.fixture
def fresh() -> Iterator[Inside]:
    """The same for one test."""
    with made_pen() as pen, made_inside(pen) as made:
        for name in ("amy", "bob"):
            start_agent(made.socket, pen, name)
        yield made


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home with a hub in a process of its own, and the agent amy."""
    with made_pen() as made:
        made.start()
        start_agent(made.home.socket(HUB), made, "amy")
        yield made

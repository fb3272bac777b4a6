"""Fixtures of the tests of the hub; `pen.py` says what a pen is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hub.http.agents import start_agent
from tests.hub.http.inside import Inside, made_inside
from tests.hub.pen import Pen, made_pen


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home of its own, whose hub is not started yet."""
    with made_pen() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Pen]:
    """One home with a running hub for all tests of a file that leave the hub alone."""
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def tidy(shared: Pen) -> Iterator[Pen]:
    """The shared home; the agents of the test are ended after it."""
    yield shared
    running = [name for name, agent in shared.agents().items() if agent["running"]]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(shared.stop, running))


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    """A hub in this process, with amy and bob, for all tests of a file that leave it running."""
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

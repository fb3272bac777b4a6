"""Fixtures of the tests of the hub; `pen.py` says what a pen is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

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

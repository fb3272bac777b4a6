"""Fixtures of the tests of the API."""

from collections.abc import Iterator

import pytest

from bullpen.home.paths import HUB
from tests.hub.http.agents import start_agent
from tests.hub.pen import Pen, made_pen


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home with a hub in a process of its own, and the agent amy."""
    with made_pen() as made:
        made.start()
        start_agent(made.home.socket(HUB), made, "amy")
        yield made

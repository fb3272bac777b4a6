"""Fixtures of the tests of the client."""

from collections.abc import Iterator

import pytest

from tests.hub.pen import Pen, made_pen


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home of its own, whose hub is not started yet."""
    with made_pen() as made:
        yield made

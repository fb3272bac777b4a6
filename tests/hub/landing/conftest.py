"""Fixtures of the tests of landing."""

from collections.abc import Iterator

import pytest

from tests.hub.landing.yard import Yard, made_yard


@pytest.fixture
def yard() -> Iterator[Yard]:
    with made_yard() as made:
        made.pen.start()
        yield made

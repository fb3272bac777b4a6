"""Fixtures of the tests of holders; `factory.py` says how they are ended."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.holder.factory import Factory, made_factory
from tests.holder.feed import Feed


@pytest.fixture
def bare_factory() -> Iterator[Factory]:
    """Not started yet."""
    with made_factory() as made:
        yield made


@pytest.fixture
def factory(bare_factory: Factory) -> Factory:
    bare_factory.start()
    return bare_factory


@pytest.fixture
def feed(factory: Factory) -> Iterator[Callable[..., Feed]]:
    made: list[Feed] = []

    def make(**fields: Any) -> Feed:
        made.append(Feed(factory, **fields))
        return made[-1]

    yield make
    for one in made:
        one.close()

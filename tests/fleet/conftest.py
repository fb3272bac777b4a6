"""Fixtures of the tests of fleets."""

from collections.abc import Iterator

import pytest

from bullpen.fleet import link
from tests.fleet.kin import Kin, made_kin


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub connects again and again; a test does it once, on a busy machine as well."""
    monkeypatch.setattr(link, "CONNECT_SECONDS", 30)


@pytest.fixture(scope="module")
def shared_kin() -> Iterator[Kin]:
    with made_kin() as made:
        yield made


@pytest.fixture
def kin(shared_kin: Kin) -> Iterator[Kin]:
    yield shared_kin
    shared_kin.end_all()

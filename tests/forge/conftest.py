"""What all tests with a fake of a forge have in common."""

from collections.abc import Iterator

import pytest

from tests.forge import official


@pytest.fixture(autouse=True)
def _exchanges_are_checked() -> Iterator[None]:
    """A test whose exchanges with a fake could not be checked counts as skipped besides, with the
    reason: that it has passed says less then."""
    official.unchecked.clear()
    yield
    if official.unchecked:
        pytest.skip(official.why_unchecked())

"""Places to attack, for each user that can be had."""

import shutil
from collections.abc import Iterator

import pytest

from tests.sandboxes.place import USERS, Place, made


@pytest.fixture(autouse=True)
def _has_bubblewrap() -> None:
    assert shutil.which("bwrap"), "bubblewrap is missing: scripts/setup installs it"


@pytest.fixture(params=USERS, ids=lambda uid: "root" if uid == 0 else "ordinary")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with made(request.param) as place:
        yield place

"""Machines to attack, for each user that can be had."""

import shutil
from collections.abc import Iterator

import pytest

from tests.sandboxes.machine import USERS, Machine, made_machine


@pytest.fixture(autouse=True)
def _has_bubblewrap() -> None:
    assert shutil.which("bwrap"), "bubblewrap is missing: scripts/setup installs it"


@pytest.fixture(params=USERS, ids=lambda uid: "root" if uid == 0 else "ordinary")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with made_machine(request.param) as machine:
        yield machine

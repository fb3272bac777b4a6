"""Machines with a sandboxed agent, for each user that can be had.

Git does the same for all of them: in `make test` they are one ordinary user's.
"""

from collections.abc import Iterator

import pytest

from tests.sandboxes.machine import USERS, Machine, made_machine

IN_STORM = [pytest.param(uid, marks=pytest.mark.storm) for uid in USERS[:-1]]


@pytest.fixture(params=[*IN_STORM, USERS[-1]], ids=lambda uid: "root" if uid == 0 else "ordinary")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with made_machine(request.param) as machine:
        yield machine

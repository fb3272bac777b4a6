"""Fixtures of the tests that run agents; `team.py` says what a team is."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.team import Team, made_team
from tests.hub.tasks.desk import Desk, made_desk


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    """Of the real Claude Code."""
    with made_team(tmp_path, "real") as made:
        yield made


@pytest.fixture(
    params=["standin", pytest.param("real", marks=pytest.mark.storm)], ids=["stand-in", "real"]
)
def both(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Team]:
    """Of the stand-in, and of the real one: what holds for the one has to hold for the other."""
    with made_team(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Desk]:
    """Agents that take tasks, of the real Claude Code."""
    with made_desk(tmp_path, "real") as made:
        yield made


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """Where strace writes, with what it writes there known to work."""
    log = tmp_path / "strace.log"
    if not shutil.which("strace"):
        pytest.skip("strace is not installed: apt-get install strace")
    done = subprocess.run(["strace", "-f", "-o", log, "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr.decode().strip()}")
    return log

"""Fixtures of the tests that run agents; `team.py` says what a team is."""

from tests.engines.team import both, team
from tests.tasks.conftest import real

__all__ = ["both", "real", "team"]

"""Fixtures of the tests that run agents; `team.py` says what a team is."""

from tests.engines.team import both, team

__all__ = ["both", "team"]

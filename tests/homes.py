"""Homes with the starter files."""

from pathlib import Path

STARTER = Path(__file__).parents[1] / "src" / "bullpen" / "starter"

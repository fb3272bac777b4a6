"""Homes with the starter files, and homes that were made without `init`."""

import os
from pathlib import Path

from bullpen.home import accepted, marker

STARTER = Path(__file__).parents[1] / "src" / "bullpen" / "home" / "starter"


def marked(root: Path, version: str = "0.1.0") -> Path:
    """A directory that says it is a home, as anybody can make one."""
    root.mkdir(parents=True, exist_ok=True)
    (root / marker.MARKER).write_text(f"v{version}\n")
    return root


def accept(root: Path, person: Path | None = None) -> Path:
    """The same home, noted as one that the person accepted."""
    if person is None:
        accepted.note(root.resolve(), os.environ, Path.home())
    else:
        accepted.note(root.resolve(), {}, person)
    return root

"""Modes of files."""

import stat
from pathlib import Path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)

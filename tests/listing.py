"""Files of a home in which something is at work: each may be gone a moment after it was listed.

`Path.glob` and `Path.rglob` then raise FileNotFoundError, when a directory goes while they walk.
"""

import contextlib
import shutil
from pathlib import Path


def list_files(root: Path, pattern: str = "**/*") -> list[Path]:
    """What was there at one look without such a moment; directories, too."""
    for _ in range(1000):
        with contextlib.suppress(FileNotFoundError):
            return list(root.glob(pattern))
    raise AssertionError(f"{root} never stands still")


def read_files(root: Path, pattern: str = "**/*") -> dict[Path, bytes]:
    """What the files hold, and not those that a link leads to."""
    found = {}
    for path in list_files(root, pattern):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                found[path] = path.read_bytes()
    return found


def delete(directory: Path) -> None:
    """At one stroke: somebody may be writing there, or putting things back already."""
    aside = directory.with_name(f"{directory.name}.gone")
    directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)

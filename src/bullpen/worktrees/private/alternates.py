"""Where else a repository reads objects from: `git clone --shared` and `--reference` leave that in
`objects/info/alternates`. A private git has to be shown them, too.

Reads files of the real repository, which no sandboxed agent can write. Called by `make` and
by `sandboxes/mounts`, which number them alike.
"""

import os
from pathlib import Path

from bullpen.files import read_plain
from bullpen.worktrees.errors import Code, WorktreeError

MOST = 32
FILE_BYTES = 1 << 16


def list_alternates(objects: Path) -> list[Path]:
    """The directories of objects that are borrowed, also by those that are borrowed."""
    stores: list[Path] = []
    waiting = [objects]
    while waiting:
        for path in _named_by(waiting.pop(0)):
            if path not in stores and path.is_dir():
                stores.append(path)
                waiting.append(path)
    if len(stores) > MOST:
        raise WorktreeError(
            Code.INVALID,
            f"{objects} borrows from more than {MOST} repositories",
            hint="git repack -a -d, and remove objects/info/alternates",
        )
    return stores


def borrows(objects: Path) -> bool:
    """Whether it names others."""
    return bool(_named_by(objects))


def _named_by(objects: Path) -> list[Path]:
    try:
        lines = os.fsdecode(read_plain(objects / "info" / "alternates", FILE_BYTES)).splitlines()
    except OSError:
        return []
    named = (line for line in lines if line and not line.startswith("#"))
    return [Path(os.path.realpath(objects / line)) for line in named]

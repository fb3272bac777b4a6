"""Links on the way to what a sandbox shows: an agent may have made one where it could write.

Called by `bounds` (no link of an agent chooses what its next start shows) and by `bubblewrap`
(nothing was put in the place of a directory between the check and the mount). `files` finds them.
Changes nothing.
"""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import PATH_ONLY, find_planted, open_beneath


def refuse_planted(path: Path, roots: Collection[Path]) -> None:
    """Raise where an agent could choose by a link what its next start shows it."""
    link = find_planted(path, roots)
    if link is not None:
        raise BullpenError(
            f"{path} leads to {os.path.realpath(path)} by a link that an agent may have made:"
            f" {link}",
            hint="look who made that link, and remove it, or name the directory that it leads to",
            kind=Kind.DENIED,
        )


def identity(path: Path) -> str:
    """Device and inode of a path that has no link, as `stat` prints them."""
    try:
        descriptor = open_beneath(Path("/"), path, PATH_ONLY)
    except OSError as error:
        raise BullpenError(
            f"a sandbox cannot show {path}: {error.strerror}",
            hint="make it, or change the role's sandbox.read_write_paths",
            kind=Kind.UNAVAILABLE,
        ) from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if stat.S_ISLNK(status.st_mode):
        raise BullpenError(f"{path} was replaced by a link just now", kind=Kind.DENIED)
    return f"{status.st_dev}:{status.st_ino}"

"""What a power cut would leave of a directory: only what was flushed.

`Disk` watches the real calls of this process (fsync, rename, link, unlink, mkdir all happen, too)
and keeps, of every file and directory below its base, what was on the disk when it was last
flushed. A directory's names and a file's contents are two things: each survives by its own fsync.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Inode = tuple[int, int]


class Disk:
    """Everything below `base` counts as flushed when it begins."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.base = base.resolve()
        self.files: dict[Inode, bytes] = {}
        self.directories: dict[Inode, dict[str, Inode]] = {}
        # Names that were given to files whose contents were not flushed: after a power cut such a
        # name may be there, and stand for an empty file.
        self.hollow: list[str] = []
        self._pins: list[int] = []  # an inode that is held open is not used again
        for path in [self.base, *self.base.rglob("*")]:
            if not path.is_symlink() and (path.is_dir() or path.is_file()):
                self._keep(os.open(path, os.O_RDONLY))
        fsync = os.fsync

        def flush(descriptor: Any) -> None:
            fsync(descriptor)
            self._keep(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))

        monkeypatch.setattr(os, "fsync", flush)
        for name in ("rename", "replace", "link"):
            monkeypatch.setattr(os, name, self._naming(getattr(os, name)))

    def close(self) -> None:
        for descriptor in self._pins:
            os.close(descriptor)

    def left(self, path: Path) -> bytes | None:
        """What the file holds after a power cut now; None: it is not there."""
        inode = _inode(self.base.stat())
        for name in path.resolve().relative_to(self.base).parts:
            inode = self.directories.get(inode, {}).get(name, (0, 0))
        return self.files.get(inode)

    def _keep(self, descriptor: int) -> None:
        self._pins.append(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                names = {e.name: _inode(e.stat(follow_symlinks=False)) for e in entries}
            self.directories[_inode(found)] = names
        else:
            self.files[_inode(found)] = os.pread(descriptor, found.st_size, 0)

    def _naming(self, call: Callable[..., None]) -> Callable[..., None]:
        def name(source: Any, target: Any, *rest: Any, **options: Any) -> None:
            path = Path(os.fsdecode(source))
            is_ours = path.is_file() and path.resolve().is_relative_to(self.base)
            if is_ours and self.files.get(_inode(path.stat())) != path.read_bytes():
                self.hollow.append(os.fsdecode(target))
            call(source, target, *rest, **options)

        return name


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino

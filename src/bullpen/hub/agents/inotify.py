"""Told by the kernel when files in a directory change; nothing is polled.

Linux only, through the C library: the standard library has no call for it.
"""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

CLOSE_WRITE, MOVED_TO, DELETE = 0x8, 0x80, 0x200
NONBLOCK, CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
EVENT = struct.Struct("iIII")
OVERFLOW = 0x4000
ONCE, ONLY_DIRECTORY, NO_LINK = 0x80000000, 0x01000000, 0x02000000

Changed = Callable[[Path], None]


class Watcher:
    """Directories, and whom to tell of each file that was written, renamed into it or deleted."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(NONBLOCK | CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._watches: dict[int, tuple[Path, Changed]] = {}
        self._once: dict[int, Callable[[], None]] = {}
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def watch(self, directory: Path, changed: Changed) -> None:
        """Tell of that directory; a second call replaces the first."""
        mask = CLOSE_WRITE | MOVED_TO | DELETE
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(directory))
        self._watches[number] = (directory, changed)

    def watch_once(self, directory: Path, changed: Callable[[], None]) -> None:
        """Tell of the next change in a directory that belongs to an agent, and of no other: however
        fast it writes there, that is one call."""
        mask = CLOSE_WRITE | MOVED_TO | ONCE | ONLY_DIRECTORY | NO_LINK
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(directory))
        self._once[number] = changed

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._descriptor, 1 << 16)
            start = 0
            while start < len(data):
                number, mask, _cookie, length = EVENT.unpack_from(data, start)
                start += EVENT.size + length
                name = os.fsdecode(data[start - length : start].rstrip(b"\0"))
                self._tell(number, mask, name)

    def _tell(self, number: int, mask: int, name: str) -> None:
        changed_once = self._once.pop(number, None)
        if changed_once is not None:
            changed_once()
        elif mask & OVERFLOW:  # some were dropped: look at everything once
            for tell in [self._once.pop(each) for each in list(self._once)]:
                tell()
            for directory, changed in list(self._watches.values()):
                for path in directory.iterdir():
                    changed(path)
        elif number in self._watches and name:
            directory, changed = self._watches[number]
            changed(directory / name)

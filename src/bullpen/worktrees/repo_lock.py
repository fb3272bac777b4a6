"""The per-repository lock: git's own worktree commands race with each other.

An flock on a file in the common git directory: it holds between threads, processes and homes, and
ends with its owner. Git processes that run under it inherit the descriptor: if we are killed, the
lock lasts until they have ended, so a roll-back never runs beside a git that still writes.
"""

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bullpen.files import make_directory
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository

WAIT_SECONDS = 120.0


@dataclass(frozen=True)
class Lock:
    """Proof that the repository's lock is held; functions that need it ask for one."""

    fd: int


@contextmanager
def locked(repo: Repository) -> Iterator[Lock]:
    """Hold the repository's lock; waits for others, not for ever."""
    make_directory(repo.own_dir)
    descriptor = os.open(repo.own_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not take(descriptor, WAIT_SECONDS):
            raise WorktreeError(
                Code.LOCKED,
                f"another process has held the lock of {repo} for {WAIT_SECONDS:g} s",
                hint=f"see who: fuser {repo.own_dir / 'lock'}",
            )
        yield Lock(descriptor)
    finally:
        os.close(descriptor)


def take(descriptor: int, seconds: float) -> bool:
    """Try for the exclusive flock until the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(random.uniform(0.001, 0.005))
        else:
            return True

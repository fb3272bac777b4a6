"""Makes the index outside that of another commit, after a bring-over. Called by `bring_over`."""

import contextlib
import shutil

from bullpen.worktrees.git import Checkout, git
from bullpen.worktrees.private.store import PrivateStore

INDEX_SECONDS = 300.0


def write_index(store: PrivateStore, checkout: Checkout, commit: str) -> bool:
    """The index of that commit; what git knows of unchanged files, and what of them is checked out
    at all, stays. False while somebody else has it locked."""
    index, lock = store.admin / "index", store.admin / "index.lock"
    ours = store.directory / "index"
    with contextlib.suppress(OSError):
        if ours.samefile(lock):
            lock.unlink()  # a hub that was killed left it
    with contextlib.suppress(FileNotFoundError):
        ours.unlink()
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(index, ours)
    env = {"GIT_INDEX_FILE": str(ours)}
    git(
        store.repo,
        "read-tree",
        "--reset",
        "-i",
        commit,
        at=checkout,
        env=env,
        timeout=INDEX_SECONDS,
    )
    try:
        lock.hardlink_to(ours)
    except FileExistsError:
        return False
    lock.replace(index)
    # Two names of one file: a rename over itself leaves both.
    for path in (lock, ours):
        path.unlink(missing_ok=True)
    return True

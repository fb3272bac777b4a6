"""Moves a target branch to a commit that was built on it, wherever the branch is checked out.

The only place where a landing changes a branch. Called by `hub/landing`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees import journal
from bullpen.worktrees.errors import reported
from bullpen.worktrees.git import Repository, git
from bullpen.worktrees.journal import FastForwarding
from bullpen.worktrees.landing.checked_out import HEADS, find_target
from bullpen.worktrees.landing.fast_forward import fast_forward, swap
from bullpen.worktrees.landing.move_inside import InsideWithFiles, move_inside
from bullpen.worktrees.private.store import PrivateStore, store_of
from bullpen.worktrees.recover import recover
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site


@dataclass(frozen=True)
class Moved:
    """Which checkout went along; None if the branch is checked out nowhere."""

    checkout: Path | None = None


def move(
    site: Site,
    target: str,
    old: str,
    new: str,
    message: str,
    lines: Sequence[str] = (),
    *,
    inside: Callable[[PrivateStore], InsideWithFiles] | None = None,
) -> Moved:
    """Move `target` from `old` to `new`, and the refs of `lines` in the same transaction. Raises
    `TargetMovedError` if it is elsewhere, `InTheWayError` if its checkout cannot follow. `inside`
    makes the sandbox in which the branch of a sandboxed agent is moved."""
    repo, ref = site.repo, f"{HEADS}{target}"
    with reported(f"cannot move {target}"), locked(repo) as lock:
        recover(repo, lock)
        checkout = find_target(site, target)
        if checkout is None:
            swap(repo, ref, old, new, lines, message, fds=[lock.fd])
            return Moved()
        store = store_of(repo.common_dir, checkout.admin, checkout.path)
        if inside is not None and checkout.admin != repo.common_dir and store.exists:
            # Before: what is remembered counts only when the target has the commit.
            if lines:
                git(repo, "update-ref", "--stdin", stdin=os.fsencode("".join(lines)))
            move_inside(store, inside(store), ref, old, new)
            return Moved(checkout.path)
        plan = FastForwarding(str(checkout.path), str(checkout.admin), ref, old, new)
        with journal.announced(repo, plan, lock) as entry:
            fast_forward(repo, plan, entry, lines, message)
        return Moved(checkout.path)


def recover_moves(repo: Repository) -> None:
    """Finish or take back what a hub that was killed had begun."""
    with reported("cannot finish what was begun"), locked(repo) as lock:
        recover(repo, lock)

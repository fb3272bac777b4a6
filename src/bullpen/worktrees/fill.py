"""Fills the pool, and throws out entries that somebody has written into."""

import os
import secrets
import sys
from pathlib import Path

from bullpen import clock
from bullpen.worktrees import admin, repo_lock, safety_copies, trash
from bullpen.worktrees.create import make
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import Checkout, resolve
from bullpen.worktrees.journal import NewWorktree
from bullpen.worktrees.plan import Spec, WorktreePlan
from bullpen.worktrees.pool import Ready, list_ready
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, open_site
from bullpen.worktrees.state import list_changes


def fill_pool(site: Site, base: str = "") -> int:
    """Bring the pool up to `site.pool` clean entries at `base`; returns how many were made.

    One process fills at a time; another that comes meanwhile has nothing to do.
    """
    if site.pool <= 0:
        return 0
    with reported("cannot fill the pool"):
        site.repo.own_dir.mkdir(exist_ok=True)
        turn = os.open(site.repo.own_dir / "fill", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            return _fill(site, base) if repo_lock.take(turn, 0) else 0
        finally:
            os.close(turn)


def _fill(site: Site, base: str) -> int:
    # Handing out must be quick and does not look; so this is when it is looked.
    for ready in list_ready(site):
        if not _is_clean(site, ready):
            _discard(site, ready)
    missing = site.pool - len(list_ready(site))
    if missing <= 0:
        return 0
    revision = f"{base or 'HEAD'}^{{commit}}"
    commit = resolve(site.repo, [revision])[revision]
    if commit is None:
        raise WorktreeError(Code.REF_NOT_FOUND, f"nothing to fill the pool from: {base}")
    make(site, [_plan(site, commit) for _ in range(missing)])
    return missing


def _is_clean(site: Site, ready: Ready) -> bool:
    try:
        return not list_changes(site.repo, Checkout(ready.path, site.repo.admin_dir / ready.id))
    except WorktreeError:
        return False  # a torn index, or handed out just now


def _discard(site: Site, ready: Ready) -> None:
    with locked(site.repo):
        if ready in list_ready(site):
            until = clock.now() + safety_copies.KEEP_FOR  # whoever wrote there may miss it
            trash.throw(ready.path, trash.entry_for(site, ready.id, until))
            admin.drop(site.repo, ready.id)


def _plan(site: Site, commit: str) -> WorktreePlan:
    id = f"pool.{secrets.token_hex(4)}"
    return WorktreePlan(
        spec=Spec(name=id, detached=True),
        member=NewWorktree(id=id, name="", path=str(site.pool_dir / id), branch="", commit=commit),
        record=None,
        head=commit,
        lock_reason=admin.POOLED,
    )


def main() -> None:
    """The background process of `refill_in_background`."""
    repo, base_dir, count, ref = sys.argv[1:]
    fill_pool(open_site(Path(repo), Path(base_dir), pool=int(count)), ref)


if __name__ == "__main__":
    main()

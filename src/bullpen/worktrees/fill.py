"""Filling the warm pool."""

import secrets
import sys
from pathlib import Path

from bullpen.worktrees import admin
from bullpen.worktrees.create import make
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import resolve
from bullpen.worktrees.journal import Member
from bullpen.worktrees.plan import Plan, Spec
from bullpen.worktrees.pool import list_ready
from bullpen.worktrees.site import Site, open_site


def fill_pool(site: Site, base: str = "") -> int:
    """Bring the pool up to `site.pool` entries at `base`; returns how many were made."""
    with reported("cannot fill the pool"):
        missing = site.pool - len(list_ready(site))
        if missing <= 0:
            return 0
        revision = f"{base or 'HEAD'}^{{commit}}"
        commit = resolve(site.repo, [revision])[revision]
        if commit is None:
            raise WorktreeError(Code.REF_NOT_FOUND, f"nothing to fill the pool from: {base}")
        plans = [_plan(site, commit) for _ in range(missing)]
        make(site, plans)
        return missing


def _plan(site: Site, commit: str) -> Plan:
    id = f"pool.{secrets.token_hex(4)}"
    return Plan(
        spec=Spec(name=id, detached=True),
        member=Member(id=id, name="", path=str(site.pool_dir / id), branch="", commit=commit),
        record=None,
        head=commit,
        lock_reason=admin.POOLED,
    )


def main() -> None:
    """The background process of `refill_in_background`."""
    repo, base_dir, count, ref = sys.argv[1:]
    fill_pool(open_site(Path(repo), Path(base_dir), pool=int(count)), ref)

"""Git worktrees for agents: made atomically, removed without losing work.

A library in its own right, synchronous, needing no hub:

    from pathlib import Path
    from bullpen import worktrees

    site = worktrees.open_site(Path("~/code/shop"), Path("~/.bullpen/worktrees"))
    path = worktrees.create(site, worktrees.Spec("amy"))
    worktrees.remove(site, "amy")

Every failure is a `WorktreeError` with a `Code`.
"""

from bullpen.worktrees.branches import subtree_branch, swarm_branch, swarm_created_at
from bullpen.worktrees.cleanup import (
    Cleaned,
    cleanup_branches,
    cleanup_orphaned,
    full_cleanup,
    gc,
    reason_to_keep,
    remove_all,
)
from bullpen.worktrees.create import create, create_many, ensure, ensure_many
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.fill import fill_pool
from bullpen.worktrees.git import (
    Repository,
    branch_exists,
    current_branch,
    has_commits,
    is_repository,
    open_repository,
    validate,
)
from bullpen.worktrees.kept import Kept, list_kept
from bullpen.worktrees.listing import Info, Listed, describe, info, list_all, list_managed
from bullpen.worktrees.persona import update_persona
from bullpen.worktrees.plan import Spec, branch_name
from bullpen.worktrees.pool import list_ready, refill_in_background
from bullpen.worktrees.records import Record, find_record
from bullpen.worktrees.remove import Removed, prune, remove
from bullpen.worktrees.restore import restore
from bullpen.worktrees.site import (
    Site,
    exists,
    open_site,
    path_for,
    persona_exists,
    persona_path,
)
from bullpen.worktrees.state import (
    Conflicts,
    DiffStat,
    changes,
    conflicts_with,
    diff_stat,
    head,
    is_being_made,
    lock,
    lock_reason,
    unlock,
)

__all__ = [
    "Cleaned",
    "Code",
    "Conflicts",
    "DiffStat",
    "Info",
    "Kept",
    "Listed",
    "Record",
    "Removed",
    "Repository",
    "Site",
    "Spec",
    "WorktreeError",
    "branch_exists",
    "branch_name",
    "changes",
    "cleanup_branches",
    "cleanup_orphaned",
    "conflicts_with",
    "create",
    "create_many",
    "current_branch",
    "describe",
    "diff_stat",
    "ensure",
    "ensure_many",
    "exists",
    "fill_pool",
    "find_record",
    "full_cleanup",
    "gc",
    "has_commits",
    "head",
    "info",
    "is_being_made",
    "is_repository",
    "list_all",
    "list_kept",
    "list_managed",
    "list_ready",
    "lock",
    "lock_reason",
    "open_repository",
    "open_site",
    "path_for",
    "persona_exists",
    "persona_path",
    "prune",
    "reason_to_keep",
    "refill_in_background",
    "remove",
    "remove_all",
    "restore",
    "subtree_branch",
    "swarm_branch",
    "swarm_created_at",
    "unlock",
    "update_persona",
    "validate",
]

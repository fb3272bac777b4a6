"""Git worktrees for agents: made atomically, removed without losing work.

A synchronous library that needs no hub; README.md has an example. Called by hub and commands.
Every failure is a `WorktreeError` with a `Code`. Must not know agents, roles or engines.
"""

from bullpen.worktrees.admin import AGENT_RUNS, TASK_WORKS
from bullpen.worktrees.branches import (
    subtree_branch,
    swarm_branch,
    swarm_branches,
    swarm_created_at,
)
from bullpen.worktrees.changes import Compared, FileCount, VerifiedCheckout, compare
from bullpen.worktrees.cleanup import (
    NOT_ENDED,
    Cleaned,
    cleanup_branches,
    cleanup_orphaned,
    cleanup_session,
    full_cleanup,
    gc,
    reason_to_keep,
    remove_all,
)
from bullpen.worktrees.commit import commit_all
from bullpen.worktrees.commits import Commits
from bullpen.worktrees.comparisons import base_of, compare_worktree, pairs_of
from bullpen.worktrees.create import create, create_many, ensure, ensure_many, reserve_ports
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.fill import fill_pool
from bullpen.worktrees.git import (
    Repository,
    branch_exists,
    current_branch,
    has_commits,
    is_repository,
    open_repository,
    resolve,
    validate,
)
from bullpen.worktrees.list_text import age_of, list_fields, list_text, state_of
from bullpen.worktrees.listing import (
    Info,
    Listed,
    describe,
    describe_all,
    describe_everywhere,
    info,
    list_all,
    list_managed,
)
from bullpen.worktrees.persona import update_persona
from bullpen.worktrees.plan import Spec, branch_name
from bullpen.worktrees.pool import list_ready, refill_in_background
from bullpen.worktrees.port_blocks import Block
from bullpen.worktrees.ports import find_port_variables
from bullpen.worktrees.records import Record, find_record, find_repository, list_repositories
from bullpen.worktrees.remove import Removed, plan_removal, prune, remove
from bullpen.worktrees.restore import restore
from bullpen.worktrees.safety_copies import SafetyCopy, list_safety_copies
from bullpen.worktrees.site import (
    Site,
    exists,
    find_checkout,
    open_site,
    path_for,
    persona_exists,
    persona_path,
    sites_in,
)
from bullpen.worktrees.state import (
    Conflicts,
    DiffStat,
    Stat,
    conflicts_of,
    conflicts_with,
    diff_stat,
    fork_point,
    head,
    is_being_made,
    lock,
    lock_reason,
    uncommitted_files,
    unlock,
)

__all__ = [
    "AGENT_RUNS",
    "NOT_ENDED",
    "TASK_WORKS",
    "Block",
    "Cleaned",
    "Code",
    "Commits",
    "Compared",
    "Conflicts",
    "DiffStat",
    "FileCount",
    "Info",
    "Listed",
    "Record",
    "Removed",
    "Repository",
    "SafetyCopy",
    "Site",
    "Spec",
    "Stat",
    "VerifiedCheckout",
    "WorktreeError",
    "age_of",
    "base_of",
    "branch_exists",
    "branch_name",
    "cleanup_branches",
    "cleanup_orphaned",
    "cleanup_session",
    "commit_all",
    "compare",
    "compare_worktree",
    "conflicts_of",
    "conflicts_with",
    "create",
    "create_many",
    "current_branch",
    "describe",
    "describe_all",
    "describe_everywhere",
    "diff_stat",
    "ensure",
    "ensure_many",
    "exists",
    "fill_pool",
    "find_checkout",
    "find_port_variables",
    "find_record",
    "find_repository",
    "fork_point",
    "full_cleanup",
    "gc",
    "has_commits",
    "head",
    "info",
    "is_being_made",
    "is_repository",
    "list_all",
    "list_fields",
    "list_managed",
    "list_ready",
    "list_repositories",
    "list_safety_copies",
    "list_text",
    "lock",
    "lock_reason",
    "open_repository",
    "open_site",
    "pairs_of",
    "path_for",
    "persona_exists",
    "persona_path",
    "plan_removal",
    "prune",
    "reason_to_keep",
    "refill_in_background",
    "remove",
    "remove_all",
    "reserve_ports",
    "resolve",
    "restore",
    "sites_in",
    "state_of",
    "subtree_branch",
    "swarm_branch",
    "swarm_branches",
    "swarm_created_at",
    "uncommitted_files",
    "unlock",
    "update_persona",
    "validate",
]

"""Calls of `/worktrees`. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.worktree_shown import WorktreeList


def list_worktrees(repo: str) -> "Call[WorktreeList]":
    """Those of the repository that holds that directory. Its text takes `colour`."""
    return Call("GET", path("worktrees"), {"repo": repo}, read=Model("worktree_shown.WorktreeList"))

"""Calls of `/agents/{name}/patch` and `/conflicts`. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.agent_shown import ConflictList, Patch


def get_patch(name: str) -> "Call[Patch]":
    """What it has changed since its worktree was made, as unified diffs."""
    return Call("GET", path("agents", name, "patch"), read=Model("agent_shown.Patch"))


def list_conflicts() -> "Call[ConflictList]":
    """Which worktrees of agents would conflict."""
    return Call("GET", path("conflicts"), read=Model("agent_shown.ConflictList"))

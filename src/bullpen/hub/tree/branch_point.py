"""Where the branch of a new subtree begins: at the commit of the agent that asks for it.

Called by `spawn`, in a thread for agents' trees. Looks; changes nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.worktrees import open_site, site_of
from bullpen.hub.context import HubContext
from bullpen.model.agent import Agent
from bullpen.worktrees import Site


@dataclass(frozen=True)
class BranchPoint:
    """Where a subtree is made: the repository, the commit, how its branch begins, and the branch
    that its work goes into if that is no agent's."""

    site: Site
    base: str
    prefix: str
    below: str
    lands_in: str = ""


def find_branch_point(context: HubContext, caller: Agent, owner: Agent) -> BranchPoint:
    """Where subtrees of that agent begin; `owner` has the worktree that it works in, if any. Runs
    git, never by a `.git` that an agent in a sandbox may have made: its filters would run here."""
    home, settings = context.home, context.settings
    if owner.worktree is not None:
        site = site_of(home, settings, owner.worktree)
        base = worktrees.head(site, owner.worktree.name)
        below = Path(caller.cwd).relative_to(owner.worktree.path)
        if owner.is_sandboxed and owner.birth_branch:
            # Its own git is its own; what was brought over is on its branch.
            base = _commit_of(site, f"refs/heads/{owner.birth_branch}") or base
        return BranchPoint(site, base, owner.birth_branch or owner.name, str(below))
    if caller.is_sandboxed:
        raise BullpenError(
            f"{caller.name} is in a sandbox and has no worktree of its own, so nobody can tell"
            f" whose repository {caller.cwd} is in",
            hint="spawn_workers starts agents in your own directory · worktree.enabled in the role"
            " gives the next agent a worktree",
            kind=Kind.CONFLICT,
        )
    try:
        site = open_site(home, settings, Path(caller.cwd))
    except BullpenError as error:
        raise BullpenError(
            f"{caller.cwd} is in no git repository, so there is no branch to begin from",
            hint="spawn_workers starts agents in your own directory",
            kind=Kind.CONFLICT,
        ) from error
    root = site.repo.root or Path(caller.cwd)
    below = Path(caller.cwd).resolve().relative_to(root)
    branch = worktrees.current_branch(site.repo) or ""
    commit = _commit_of(site, "HEAD")
    return BranchPoint(site, commit, branch or caller.name, str(below), branch)


def _commit_of(site: Site, revision: str) -> str:
    name = f"{revision}^{{commit}}"
    return worktrees.resolve(site.repo, [name])[name] or ""

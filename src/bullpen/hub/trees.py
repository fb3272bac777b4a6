"""Worktrees of agents: locked while they run, taken back when their start failed.

Synchronous; `start`, `watch` and `pods` call it in threads.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.model.agent import Agent
from bullpen.paths import Home
from bullpen.settings import Settings
from bullpen.worktrees import Site, Spec, WorktreeError

log = logging.getLogger("bullpen.hub")

LOCK_REASON = "its agent is running · bullpen stop {}"


@dataclass(frozen=True)
class Tree:
    """The worktree of a plan: where, and as what it is made if it is not there."""

    site: Site
    spec: Spec
    new_branch: bool = True  # it is born with the worktree

    def made_for(self, run: str) -> Spec:
        """The spec, with the run on it: so a start that failed can tell what it made."""
        return replace(self.spec, made_for=run)


def plan_tree(site: Site, spec: Spec) -> Tree:
    """A branch that is there already outlives a start that is taken back."""
    branch = spec.birth_branch
    return Tree(site, spec, not branch or not worktrees.branch_exists(site.repo, branch))


def open_site(home: Home, settings: Settings, repo: Path) -> Site:
    """The site of that repository under this home's settings."""
    rules = settings.worktrees
    return worktrees.open_site(
        repo,
        # A relative base is relative to the home.
        home.root / Path(rules.base).expanduser() if rules.base else home.worktrees,
        branch_prefix=rules.branch_prefix,
        pool=rules.pool,
        max_depth=rules.max_depth,
    )


def ensure_tree(tree: Tree, agent: Agent) -> bool:
    """Have it there, locked for the agent; whether it was made just now."""
    worktrees.ensure(tree.site, tree.made_for(agent.run))
    try:
        worktrees.lock(tree.site, agent.name, LOCK_REASON.format(agent.name))
    except WorktreeError as error:
        if error.code != worktrees.Code.LOCKED:  # a lock that a person set before stays theirs
            raise
    record = worktrees.find_record(tree.site, agent.name)
    return record is not None and record.made_for == agent.run


def unlock_tree(home: Home, settings: Settings, agent: Agent) -> None:
    """The agent has ended. Only our own lock is lifted."""
    if agent.worktree is None:
        return
    try:
        _lift_own_lock(open_site(home, settings, Path(agent.worktree.repo)), agent.name)
    except BullpenError as error:  # the repository may be gone; the agent has ended all the same
        log.warning("cannot unlock a worktree", extra={"agent": agent.name, "why": error.message})


def has_own_lock(home: Home, settings: Settings, agent: Agent) -> bool:
    """Whether the agent's worktree is locked for it; False when that cannot be told."""
    if agent.worktree is None:
        return False
    try:
        site = open_site(home, settings, Path(agent.worktree.repo))
        return worktrees.lock_reason(site, agent.name) == LOCK_REASON.format(agent.name)
    except BullpenError:
        return False


def take_back_tree(site: Site, name: str, run: str, *, new_branch: bool, ran: bool) -> str:
    """Remove what was made for a start that failed; why it was left, empty when it was not.

    Of a program that never ran only the set-up can have left files there. What one that ran
    has not committed stays.
    """
    try:
        _lift_own_lock(site, name)
        record = worktrees.find_record(site, name)
        if record is None or record.made_for != run:
            return ""  # there before, or somebody else's
        reason = worktrees.lock_reason(site, name)
        if reason is not None:
            return f"{name} is locked" + (f": {reason}" if reason else "")
        worktrees.remove(site, name, force=not ran, delete_branch=new_branch)
    except WorktreeError as error:
        log.warning("kept a worktree", extra={"agent": name, "why": error.message})
        return error.message
    return ""


def _lift_own_lock(site: Site, name: str) -> None:
    if worktrees.lock_reason(site, name) == LOCK_REASON.format(name):
        worktrees.unlock(site, name)

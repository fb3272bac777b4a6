"""Worktrees of agents: locked while they run, taken back when their start failed.

Synchronous; `terminals`, `watch` and `pods` call it in threads for agents' trees
(`hub/tree_threads`).
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.model.agent import Agent, WorktreeRef
from bullpen.worktrees import Site, Spec, WorktreeError
from bullpen.worktrees.records import list_records

log = logging.getLogger("bullpen.hub")

LOCK_REASON = f"{worktrees.AGENT_RUNS} · bullpen stop {{}}"


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


def refuse_other_branch(site: Site, spec: Spec) -> None:
    """A worktree that is there is used as it is: not where another branch was asked for."""
    record = worktrees.find_record(site, spec.name)
    if (
        record is not None
        and record.is_of(site.repo)
        and record.branch != spec.birth_branch
        and worktrees.exists(site, spec.name)
    ):
        raise BullpenError(
            f"{spec.name} has a worktree on {record.branch or 'no branch'} already, not on"
            f" {spec.birth_branch}",
            hint=f"another name, or bullpen worktree remove {spec.name}",
            kind=Kind.CONFLICT,
        )


def base_of(home: Home, settings: Settings) -> Path:
    """Where the home's worktrees lie. A relative base is relative to the home."""
    base = settings.worktrees.base
    return home.root / Path(base).expanduser() if base else home.worktrees


def bases_of(agents: Iterable[Agent]) -> list[Path]:
    """Where worktrees of these agents lie, wherever new ones are made now."""
    paths = (agent.worktree.path for agent in agents if agent.worktree is not None)
    return [Path(path).parent for path in paths if os.path.lexists(path)]


def site_of(home: Home, settings: Settings, worktree: WorktreeRef) -> Site:
    """The site of a worktree that was made, wherever new ones are made now."""
    return open_site(home, settings, Path(worktree.repo), Path(worktree.path).parent)


def open_site(home: Home, settings: Settings, repo: Path, base: Path | None = None) -> Site:
    """The site of that repository under this home's settings."""
    rules = settings.worktrees
    return worktrees.open_site(
        repo,
        base or base_of(home, settings),
        branch_prefix=rules.branch_prefix,
        pool=rules.pool,
        max_depth=rules.max_depth,
        port_range=rules.ports,
    )


def find_base(home: Home, settings: Settings, agent: Agent) -> str:
    """What the agent's worktree was made from; empty if it has none, or that cannot be told."""
    if agent.worktree is None:
        return ""
    try:
        site = site_of(home, settings, agent.worktree)
        record = worktrees.find_record(site, agent.worktree.name)
    except BullpenError:
        return ""
    return record.base if record else ""


def add_ports(launch_env: LaunchEnv, agent: Agent) -> LaunchEnv:
    """With the variables of the ports of the agent's worktree, of a worker those of its parent's.
    Not stored with the environment: a worktree may get others in its next life. Reads the record
    of the worktree."""
    if agent.worktree is not None:
        ports = worktrees.find_port_variables(Path(agent.worktree.path))
    elif agent.parent:
        ports = _ports_around(Path(agent.cwd))
    else:
        return launch_env
    return replace(launch_env, env={**launch_env.env, **ports})


def _ports_around(cwd: Path) -> dict[str, str]:
    """Of the worktree that it lies in; the outermost, since what is within may be an agent's."""
    for path in (*reversed(cwd.parents), cwd):
        ports = worktrees.find_port_variables(path)
        if ports:
            return ports
    return {}


def ensure_tree(tree: Tree, agent: Agent) -> bool:
    """Have it there, locked for the agent; whether it was made just now."""
    try:
        worktrees.ensure(tree.site, tree.made_for(agent.run))
    except WorktreeError as error:
        if error.code == worktrees.Code.BRANCH_EXISTS:
            error.hint = _instead_of_taken(tree)
        raise
    try:
        worktrees.lock(tree.site, agent.name, LOCK_REASON.format(agent.name))
    except WorktreeError as error:
        if error.code != worktrees.Code.LOCKED:  # a lock that a person set before stays theirs
            raise
    record = worktrees.find_record(tree.site, agent.name)
    return record is not None and record.made_for == agent.run


def _instead_of_taken(tree: Tree) -> str:
    """What to do about a branch that is somebody else's. Agents get branches of their own."""
    branch, names = tree.spec.birth_branch, list[str]()
    with contextlib.suppress(WorktreeError):  # one that cannot be read is not what this is about
        records = list_records(tree.site.base)
        names = [one.name for one in records if one.is_of(tree.site.repo) and one.branch == branch]
    own = f"--name {names[0]} goes on with it · " if names else ""
    return f"{own}--branch NEW --base {branch} makes a new branch that begins at it"


def unlock_tree(home: Home, settings: Settings, agent: Agent) -> None:
    """The agent has ended. Only our own lock is lifted."""
    if agent.worktree is None:
        return
    try:
        _lift_own_lock(site_of(home, settings, agent.worktree), agent.name)
    except BullpenError as error:  # the repository may be gone; the agent has ended all the same
        log.warning("cannot unlock a worktree", extra={"agent": agent.name, "why": error.message})


def has_own_lock(home: Home, settings: Settings, agent: Agent) -> bool:
    """Whether the agent's worktree is locked for it; False when that cannot be told."""
    if agent.worktree is None:
        return False
    try:
        site = site_of(home, settings, agent.worktree)
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

"""Whose work lands, where it is, and into which branch it goes by itself. Looks; changes nothing.

Synchronous; called in threads for agents' trees.
"""

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.home.projects import list_projects, load_project
from bullpen.home.settings import Settings
from bullpen.hub.agents.worktrees import base_of, open_site, site_of
from bullpen.model.agent import Agent
from bullpen.model.landing import SHORT, Landing, combine
from bullpen.model.landing_rules import LandingSettings
from bullpen.model.project import Project
from bullpen.model.rights import Rights, limited
from bullpen.model.role import Role
from bullpen.worktrees import Record, Site
from bullpen.worktrees.landing.checked_out import HEADS
from bullpen.worktrees.plain import find_tip

NOTHING = Rights(sandboxed=True, network=False, ssh_agent=False)
COMMIT = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Subject:
    """A worktree whose branch may land."""

    name: str
    site: Site
    branch: str
    tip: str
    base: str  # where its work goes: the ref that it was made from, as a rule
    birth: str  # tells one life of its name from the next
    has_worktree: bool  # else only its branch is left
    role: str
    pod: str = ""
    overrides: tuple[str, ...] = ()
    ceiling: Rights | None = None
    is_of_agent: bool = False


def find_subject(home: Home, settings: Settings, name: str, agent: Agent | None) -> Subject:
    """The worktree of that agent, or the one of that name: tasks work in one, too."""
    if agent is not None and agent.worktree is not None:
        site, tree = site_of(home, settings, agent.worktree), agent.worktree.name
    else:
        base = base_of(home, settings)
        repo = worktrees.find_repository(base, name)
        if repo is None and agent is not None:
            raise BullpenError(
                f"{name} has no worktree of its own: nothing of it lands", kind=Kind.CONFLICT
            )
        if repo is None:
            raise BullpenError(
                f"no agent or worktree called {name}", hint="bullpen list", kind=Kind.NOT_FOUND
            )
        site, tree = open_site(home, settings, repo), name
    record = worktrees.find_record(site, tree)
    branch = record.branch if record and record.is_of(site.repo) else ""
    ref = f"{HEADS}{branch}"
    tip = find_tip(site.repo, ref) if branch else None
    if record is None or not tip:
        raise BullpenError(
            f"{name} is on no branch that could land",
            hint=f"make one in {site.base / tree}: git switch -c NAME",
            kind=Kind.CONFLICT,
        )
    is_there = worktrees.exists(site, tree)
    of_tree = Subject(name, site, branch, tip, record.target, record.id, is_there, record.role)
    if agent is None:
        # Of a child that is removed nobody knows any more what it might do.
        return replace(of_tree, ceiling=NOTHING if record.parent else None)
    return replace(
        of_tree,
        role=agent.role or record.role,
        pod=agent.pod,
        overrides=agent.overrides,
        ceiling=agent.ceiling,
        is_of_agent=True,
    )


def load_author_role(home: Home, author: Subject | Landing) -> Role | None:
    """The role of whose work it is, with no more than it had; None: it had none."""
    if not author.role:
        return None
    role = load_changed_role(home, author.role, author.pod, author.overrides)
    return limited(role, author.ceiling)


def choose_target(subject: Subject, into: str | None) -> str:
    """The local branch that it lands in; raises where that has to be said."""
    repo = subject.site.repo
    target = into or subject.base
    exists = bool(target) and find_tip(repo, f"{HEADS}{target}") is not None
    if into is not None and not exists:
        raise BullpenError(
            f"no branch called {into} in {repo}", hint="git branch lists them", kind=Kind.NOT_FOUND
        )
    if not exists:
        was = f"made from {target}, which is no local branch" if target else "made from no branch"
        if COMMIT.fullmatch(target):
            was = f"made from the commit {target[:SHORT]}, not from a branch"
        raise _say_it(subject, was)
    if target == subject.branch:
        raise BullpenError(f"{target} cannot land in itself", hint="another --into")
    if into is None and _is_of_an_agent(subject.site, target):
        raise _say_it(subject, f"made from {target}, which is another agent's")
    return target


def _say_it(subject: Subject, was: str) -> BullpenError:
    above = subject.branch.rpartition(".")[0]  # of the agent that started it, if one did
    into = above if above and find_tip(subject.site.repo, f"{HEADS}{above}") else "BRANCH"
    return BullpenError(
        f"{subject.name} was {was}: say where it lands",
        hint=f"bullpen land {subject.name} --into {into}",
        kind=Kind.CONFLICT,
    )


def _is_of_an_agent(site: Site, branch: str) -> bool:
    for path in sorted(site.records.glob("*.json")):
        record: Record | None = None
        with contextlib.suppress(BullpenError):
            record = worktrees.find_record(site, path.stem)
        if record and record.is_of(site.repo) and record.branch == branch:
            return True
    return False


def find_rules(home: Home, settings: Settings, site: Site) -> LandingSettings:
    """What counts in that repository: its project's file, then `config.yaml`."""
    for name in list_projects(home):
        project: Project | None = None
        with contextlib.suppress(BullpenError):  # `bullpen validate` says what is wrong with it
            project = load_project(home, name)
        if project and project.landing and _is_about(home, project, site):
            return combine(settings.landing, project.landing)
    return settings.landing


def _is_about(home: Home, project: Project, site: Site) -> bool:
    paths = [home.projects / project.name]
    paths += [Path(text).expanduser() for text in (project.repo, project.workdir) if text]
    for path in paths:
        with contextlib.suppress(OSError, BullpenError):
            if path.is_dir() and worktrees.open_repository(path).common_dir == site.repo.common_dir:
                return True
    return False

"""Where a task works that names no directory: where the person stands.

Used by `bullpen task`. Looks at the role, the repository and the settings; makes nothing. The hub
checks again what it is given.
"""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.client.tasks import TaskFields
from bullpen.errors import BullpenError
from bullpen.home import paths, projects
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentWithUsage

OWN = "in an empty directory of its own"


@dataclass(frozen=True)
class Where:
    """Fields of a task, and the words that tell a person what they mean."""

    fields: TaskFields
    words: str


def named(fields: TaskFields, home: Home) -> str:
    """The words for what the person named; empty if that is nothing."""
    if fields.get("session_id"):
        return "where its session was"
    if workdir := fields.get("workdir"):
        return f"in {paths.short_path(Path(workdir))}"
    if repo := fields.get("repo"):
        return _in_worktree(repo, fields.get("worktree") or "")
    return _of_project(fields.get("project"), home)


def _of_project(name: object, home: Home) -> str:
    if not isinstance(name, str) or name not in projects.list_projects(home):
        return ""
    project = projects.load_project(home, name)
    where = project.workdir or project.repo
    return f"in {where} (projects/{name}.yaml)" if where else ""


def here(home: Home, directory: Path, role: str, name: str) -> Where:
    """In a worktree of this repository if the role has one, which is called `name` (the agent's, or
    the branch that the person names); else in this directory, if tasks may work there."""
    from bullpen.home.settings import load_settings
    from bullpen.home.workdirs import checked_directory

    settings, person = load_settings(home.config_file), paths.person_home()
    repo = find_repository(directory) if role and _has_worktree(home, role) else None
    where = repo or directory
    try:
        checked_directory(home, settings, person, str(where))
    except BullpenError as error:
        return Where({}, f"{OWN}: {error.message}")
    if repo is None:
        return Where({"workdir": str(directory)}, f"in {paths.short_path(directory)}")
    branch = name or f"task-{uuid.uuid4().hex[:8]}"
    return Where({"repo": str(repo), "worktree": branch}, _in_worktree(str(repo), branch))


def anywhere(fields: TaskFields, directory: Path, *, is_scratch: bool) -> Where:
    """On whichever machine of the fleet: what is committed in the repository that the person names,
    or stands in, goes there. A branch that they name counts in either."""
    repo, branch = fields.get("repo"), fields.get("worktree")
    if is_scratch and (repo or branch):
        raise BullpenError("--scratch is for a task that names no repository and no branch")
    if not repo and not is_scratch:
        root = find_repository(directory)
        repo = str(root) if root else None
    if not repo:
        return Where({}, OWN)
    branch = branch or f"task-{uuid.uuid4().hex[:8]}"
    where = f"on what is committed in {paths.short_path(Path(repo))}"
    return Where({"repo": repo, "worktree": branch}, f"{where}, and its work comes as {branch}")


def role_of(home: Home, name: str, agent: "AgentWithUsage | None") -> str:
    """The role of that agent: as it runs, else as its file says; empty if nobody knows."""
    if agent is not None and agent.running:
        return agent.role
    return load_agent_file(home, name).role if name in list_agent_files(home) else ""


def _has_worktree(home: Home, role: str) -> bool:
    from bullpen.home.overrides import load_changed_role

    return load_changed_role(home, role, "", ()).worktree.enabled


def find_repository(directory: Path) -> Path | None:
    """The root of the checkout around it; None if there is none that a worktree could be of."""
    from bullpen.worktrees.git import has_commits, is_repository, open_repository

    if not is_repository(directory):
        return None
    repo = open_repository(directory)
    return repo.root if has_commits(repo) else None


def _in_worktree(repo: str, branch: str) -> str:
    where = paths.short_path(Path(repo)) if repo.startswith("/") else repo
    return f"in a worktree of {where}, branch {branch}"

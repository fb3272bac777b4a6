"""Branches of agents that are to land, and a person's checkout."""

from pathlib import Path

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.landing.build import Built, Work, build
from bullpen.worktrees.landing.landed import remember_lines
from bullpen.worktrees.landing.move import Moved, move
from bullpen.worktrees.landing.signature import Person, find_person
from tests.worktrees.repos import commit, git

ANN = Person("Ann", "ann@example.com")


def make_person(repo: Path) -> Person:
    git(repo, "config", "user.name", "Ann")
    git(repo, "config", "user.email", "ann@example.com")
    return find_person(worktrees.open_repository(repo))


def tree_of(site: Site, name: str, **files: str) -> Path:
    """A worktree of that name, with a commit for each file."""
    path = (
        worktrees.create(site, Spec(name)) if not worktrees.exists(site, name) else site.base / name
    )
    for file, text in files.items():
        commit(path, file.replace("__", "/").replace("_", "."), text)
    return path


def work_of(site: Site, name: str, strategy: str = "merge") -> Work:
    return Work(name, name, head_of(site, name), strategy)


def head_of(site: Site, ref: str) -> str:
    root = site.repo.root or site.repo.common_dir
    return git(root, "rev-parse", ref)


def built(site: Site, name: str, strategy: str = "merge", target: str = "main") -> Built:
    return build(
        site.repo, work_of(site, name, strategy), head_of(site, target), target, lambda: ANN
    )


def land(
    site: Site, name: str, strategy: str = "merge", target: str = "main"
) -> tuple[Built, Moved]:
    """Build and move, as the queue does it."""
    old = head_of(site, target)
    result = built(site, name, strategy, target)
    assert not result.conflicts, result
    if result.is_there:
        return result, Moved()
    lines = []
    if strategy != "merge":
        lines = remember_lines(name, target, head_of(site, name), result.commit)
    return result, move(site, target, old, result.commit, f"bullpen: landed {name}", lines)


def status(where: Path) -> str:
    """What git itself finds changed, ignored files too."""
    return git(where, "status", "--porcelain", "--ignored", "--untracked-files=all")

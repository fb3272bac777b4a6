"""What a worktree's state is: head, changes, differences, conflicts, locks.

Only reads, except `lock` and `unlock`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees import admin
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import Checkout, Repository, git, resolve
from bullpen.worktrees.records import find_record
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, find_checkout, is_intact, path_for


@dataclass(frozen=True)
class DiffStat:
    """Committed and uncommitted changes since a worktree left its base."""

    files: int
    insertions: int
    deletions: int
    untracked: int


@dataclass(frozen=True)
class Conflicts:
    """Would merging these two conflict, and in which files."""

    ours: str
    theirs: str
    files: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.files)


def get_checkout(site: Site, name: str) -> Checkout:
    """The intact worktree of that name; otherwise an error that says which half is missing."""
    path = path_for(site, name)
    checkout = find_checkout(site, path)
    if checkout and is_intact(checkout):
        return checkout
    if os.path.lexists(path):
        raise corrupt(name, path)
    if checkout:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT,
            f"the files of worktree {name} are gone: {path}",
            hint=f"bullpen worktree remove {name} drops git's record of it",
        )
    raise WorktreeError(
        Code.WORKTREE_NOT_FOUND, f"no worktree called {name} in {site.base}", hint=_near(site)
    )


def corrupt(name: str, path: Path) -> WorktreeError:
    """The directory is there, but its `.git` file is missing or points nowhere."""
    return WorktreeError(
        Code.WORKTREE_CORRUPT,
        f"{path} is no valid worktree: its .git file is missing or points nowhere",
        hint=f"try git worktree repair {path}, or bullpen worktree remove {name}",
    )


def head(site: Site, name: str) -> str:
    """The commit that the worktree is at; empty on a branch without one (`--orphan`)."""
    words = ("rev-parse", "--verify", "--quiet", "HEAD")
    return git(site.repo, *words, at=get_checkout(site, name), accept=(0, 1)).text.strip()


def changes(site: Site, name: str) -> list[str]:
    """Uncommitted and untracked files, ignored ones not; empty means clean."""
    return list_changes(site.repo, get_checkout(site, name))


def list_changes(repo: Repository, checkout: Checkout) -> list[str]:
    """`changes` for a checkout already at hand.

    Of a repository inside it only the commit is compared: to look for changed files git
    would start another git in there, under a configuration that an agent may have written.
    """
    done = git(
        repo,
        *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
        "--ignore-submodules=dirty",
        at=checkout,
        timeout=600,
    )
    return [entry[3:] for entry in done.text.split("\0") if entry]


def diff_stat(site: Site, name: str) -> DiffStat:
    """How far the worktree is from the point where it left its base."""
    checkout = get_checkout(site, name)
    start = _fork_point(site, name, checkout)
    done = git(
        site.repo,
        *("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"),
        *("--ignore-submodules=dirty", start),
        at=checkout,
        timeout=600,
    )
    rows = [entry.split("\t") for entry in done.text.split("\0") if entry]
    # Binary files show "-" in place of counts.
    added = sum(int(row[0]) for row in rows if row[0].isdigit())
    deleted = sum(int(row[1]) for row in rows if row[1].isdigit())
    others = git(
        site.repo, "ls-files", "-z", "--others", "--exclude-standard", at=checkout, timeout=600
    )
    return DiffStat(len(rows), added, deleted, others.out.count(b"\0"))


def conflicts_with(site: Site, name: str, other: str) -> Conflicts:
    """Would the two branches conflict? `other` is a worktree's name or any ref.

    Commits only; nothing is checked out and no branch moves.
    """
    with reported(f"cannot compare {name} with {other}"):
        ours, theirs = head(site, name), _commit_of(site, other)
        done = git(
            site.repo,
            *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"),
            *("--allow-unrelated-histories", ours, theirs),
            accept=(0, 1),
            timeout=600,
        )
        names = done.text.split("\0")[1:] if done.code else []
        return Conflicts(ours, theirs, tuple(dict.fromkeys(filter(None, names))))


def lock(site: Site, name: str, reason: str = "") -> None:
    """Protect the worktree from removal."""
    with reported(f"cannot lock {name}"), locked(site.repo):
        checkout = get_checkout(site, name)
        held = admin.lock_reason(checkout.admin)
        if held is not None:
            raise WorktreeError(
                Code.LOCKED,
                f"{name} is locked already" + (f": {held}" if held else ""),
                hint=f"bullpen worktree unlock {name}",
            )
        admin.set_lock(checkout.admin, " ".join(reason.split()))


def lock_reason(site: Site, name: str) -> str | None:
    """Why it is locked (perhaps an empty text); None when it is not, or not there."""
    checkout = find_checkout(site, path_for(site, name))
    return admin.lock_reason(checkout.admin) if checkout else None


def is_being_made(site: Site, name: str) -> bool:
    """Whether somebody is at it, perhaps its set-up alone: its maker may be dead."""
    return lock_reason(site, name) == admin.BEING_MADE


def unlock(site: Site, name: str) -> None:
    """Lift the protection; unlocking an unlocked one is fine."""
    with reported(f"cannot unlock {name}"), locked(site.repo):
        checkout = find_checkout(site, path_for(site, name)) or get_checkout(site, name)
        admin.clear_lock(checkout.admin)


def _commit_of(site: Site, other: str) -> str:
    checkout = find_checkout(site, site.base / other) if "/" not in other else None
    if checkout and is_intact(checkout):
        return head(site, other)
    commit = resolve(site.repo, [f"{other}^{{commit}}"])[f"{other}^{{commit}}"]
    if commit is None:
        raise WorktreeError(
            Code.REF_NOT_FOUND, f"no worktree, branch or commit called {other}", hint=_near(site)
        )
    return commit


def _fork_point(site: Site, name: str, checkout: Checkout) -> str:
    record = find_record(site, name)
    candidates = [record.base, record.base_commit] if record else ["HEAD"]
    found = resolve(site.repo, [f"{text}^{{commit}}" for text in candidates if text])
    here = head(site, name)
    for commit in filter(None, found.values()):
        if not here:
            return commit
        done = git(site.repo, "merge-base", commit, here, at=checkout, accept=(0, 1))
        if done.code == 0:
            return done.text.strip()
    return here


def _near(site: Site) -> str:
    try:
        names = sorted(p.name for p in site.base.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        names = []
    return f"there are: {', '.join(names)}" if names else "bullpen worktree create NAME makes one"

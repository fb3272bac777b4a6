"""The state of one worktree: head, changes, differences, conflicts, locks.

Only reads, except `lock` and `unlock`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees import admin
from bullpen.worktrees.commits import Commits, commits_since
from bullpen.worktrees.conflicts import find_conflicts
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import Checkout, Repository, git, resolve
from bullpen.worktrees.own_index import LOOK_SECONDS, Look, look_at
from bullpen.worktrees.plain import check_admin
from bullpen.worktrees.records import find_record
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, find_checkout, is_intact, path_for


@dataclass(frozen=True)
class Stat:
    """How much two versions differ; lines of binary files are not counted."""

    files: int = 0
    insertions: int = 0
    deletions: int = 0


@dataclass(frozen=True)
class DiffStat:
    """Since a worktree left its base: what is committed, and what is not. Apart, so that neither
    hides the other: what is committed and changed back in the files is counted twice."""

    commits: Commits
    committed: Stat
    uncommitted: Stat  # without new files
    untracked: int
    names: tuple[str, ...]  # of everything that is not committed


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
        if checkout:
            check_admin(checkout.admin)  # says which of its files is a pipe
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


def uncommitted_files(site: Site, name: str) -> list[str]:
    """Uncommitted and untracked files, ignored ones not; empty means clean."""
    return list_changes(site.repo, get_checkout(site, name))


def list_changes(repo: Repository, checkout: Checkout) -> list[str]:
    """`uncommitted_files` of a checkout, with what is only staged.

    Of a repository inside it only the commit is compared: to look for changed files git
    would start another git in there, under a configuration that an agent may have written.
    """
    with look_at(repo, checkout) as look:
        return changed_names(look)


def changed_names(look: Look) -> list[str]:
    """What is changed in the files or in the index, each name once."""
    return list(dict.fromkeys((*look.changed(), *look.staged())))


def diff_stat(site: Site, name: str, *, seconds: float = LOOK_SECONDS) -> DiffStat:
    """How far the worktree is from the point where it left its base."""
    checkout = get_checkout(site, name)
    with look_at(site.repo, checkout, seconds=seconds) as look:
        names = look.changed()
        rows = _numstat(look, look.head) if look.head else {}
        start = fork_point(site, name, look.head) if look.head else ""
        return DiffStat(
            commits=commits_since(look, start),
            committed=_stat(_numstat(look, start, look.head)) if start else Stat(),
            uncommitted=_stat(rows),
            untracked=len(set(names) - set(rows)),
            names=tuple(dict.fromkeys((*names, *look.staged()))),
        )


def _numstat(look: Look, *versions: str) -> dict[str, list[str]]:
    """Added and deleted lines by name."""
    done = look.git(
        *("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"),
        *("--ignore-submodules=dirty", *versions),
    )
    rows = (entry.split("\t", 2) for entry in done.text.split("\0") if entry)
    return {row[2]: row[:2] for row in rows}


def _stat(rows: dict[str, list[str]]) -> Stat:
    # Binary files show "-" in place of counts.
    added, deleted = (
        sum(int(row[side]) for row in rows.values() if row[side].isdigit()) for side in (0, 1)
    )
    return Stat(len(rows), added, deleted)


def conflicts_with(site: Site, name: str, other: str) -> Conflicts:
    """Would the two branches conflict? `other` is a worktree's name or any ref.

    Commits only; nothing is checked out and no branch moves.
    """
    return conflicts_of(site, [(name, other)])[name, other]


def conflicts_of(site: Site, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Conflicts]:
    """The same for many pairs, each of a worktree and another or a ref; all in one process."""
    with reported("cannot compare"):
        commits = {one: head(site, one) for one in dict.fromkeys(one for one, _ in pairs)}
        others = {other: None for _, other in pairs if other not in commits}
        commits |= {other: _commit_of(site, other) for other in others}
        files = find_conflicts(site.repo, commits, pairs)
        return {
            (one, other): Conflicts(commits[one], commits[other], files[one, other])
            for one, other in pairs
        }


def lock(site: Site, name: str, reason: str = "") -> None:
    """Protect the worktree from removal."""
    with reported(f"cannot lock {name}"), locked(site.repo):
        checkout = get_checkout(site, name)
        locked_for = admin.lock_reason(checkout.admin)
        if locked_for is not None:
            raise WorktreeError(
                Code.LOCKED,
                f"{name} is locked already" + (f": {locked_for}" if locked_for else ""),
                hint=f"bullpen worktree unlock {name}",
            )
        admin.set_lock(checkout.admin, " ".join(reason.split()))


def lock_reason(site: Site, name: str) -> str | None:
    """Why it is locked (perhaps an empty text); None when it is not, or not there."""
    checkout = find_checkout(site, path_for(site, name))
    return admin.lock_reason(checkout.admin) if checkout else None


def is_being_made(site: Site, name: str) -> bool:
    """Whether it is being made, perhaps only its set-up is missing; its maker may be dead."""
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


def fork_point(site: Site, name: str, tip: str, against: str = "") -> str:
    """Where `tip` left what the worktree was made from, or that other ref."""
    record = find_record(site, name)
    candidates = [record.base, record.base_commit] if record else ["HEAD"]
    if against:
        candidates = [_commit_of(site, against)]
    commits = resolve(site.repo, [f"{text}^{{commit}}" for text in candidates if text])
    for commit in filter(None, commits.values()):
        done = git(site.repo, "merge-base", commit, tip, accept=(0, 1))
        if done.code == 0:
            return done.text.strip()
    return tip


def _near(site: Site) -> str:
    try:
        names = sorted(p.name for p in site.base.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        names = []
    return f"there are: {', '.join(names)}" if names else "bullpen worktree create NAME makes one"

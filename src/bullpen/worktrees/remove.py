"""Removing worktrees without ever dropping work that exists nowhere else.

One path for all removals: `look` gathers what the worktree is, `decide` says what
will be removed, kept and saved or refuses (pure), `_act` does it. The act is a
rename aside; deletion goes on in the background.
"""

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import clock
from bullpen.files import read_plain
from bullpen.worktrees import admin, journal, kept, trash
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import Checkout, git, is_born_elsewhere, resolve
from bullpen.worktrees.journal import Removing
from bullpen.worktrees.listing import Listed, list_all, list_managed
from bullpen.worktrees.merged import Standing, standing
from bullpen.worktrees.records import Record, find_record
from bullpen.worktrees.recover import finish_removal, recover
from bullpen.worktrees.repo_lock import Lock, locked
from bullpen.worktrees.site import Site, find_checkout, foreign_repository, path_for
from bullpen.worktrees.state import list_changes

INDEX_BYTES = 1 << 28  # of one that is larger git is asked
NOTHING_LOST = Standing(0, squashed=False)


@dataclass(frozen=True)
class Removed:
    """What a removal did."""

    name: str
    existed: bool
    branch: str = ""  # deleted with it
    branch_left: str = ""  # its commits exist nowhere else
    unique_commits: int = 0  # of the branch
    kept: str = ""  # the safety copy's ref
    aside: Path | None = None  # files that no safety copy can hold, kept as long as one


@dataclass(frozen=True)
class Found:
    """A worktree as it stands before its removal."""

    name: str
    path: Path
    record: Record | None = None
    admin: Path | None = None  # None: git knows nothing of it
    lock_reason: str | None = None
    head: str = ""
    on: str = ""  # the branch that the head is on
    detached: Standing = NOTHING_LOST  # of a head that is on no branch
    branch: str = ""  # its birth branch, if that is there and nobody else uses it
    tip: str = ""
    standing: Standing = NOTHING_LOST  # of that branch
    changes: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()  # inside it; no safety copy can hold their commits
    unknown_files: bool = False  # a directory that is no worktree, and not empty
    unreadable: str = ""  # what git said when it could not look at the files


@dataclass(frozen=True)
class Decision:
    """What a removal will do."""

    delete_branch: bool
    save: tuple[str, ...]  # commits that would otherwise be lost; the first is the head
    save_files: bool
    hold_aside: bool  # keep the files for a while instead of deleting them


def remove(site: Site, name: str, *, force: bool = False, delete_branch: bool = True) -> Removed:
    """Remove the worktree, and its branch if nothing would be lost with it. Idempotent."""
    path = path_for(site, name)
    with reported(f"cannot remove {name}", Code.CLEANUP_FAILED):
        with locked(site.repo) as lock:
            recover(site.repo, lock)
            found = look(site, name, path)
            if found.admin is None and not found.branch and not os.path.lexists(path):
                return Removed(name, existed=False)
            decision = decide(found, force, delete_branch)
            result = _act(site, found, decision, lock)
        trash.empty(site)
        return result


def prune(site: Site) -> int:
    """Drop git's records of managed worktrees whose files are gone; returns how many.

    Only under our base: elsewhere a missing directory may be a disk that is not mounted.
    """
    with reported("cannot prune", Code.CLEANUP_FAILED), locked(site.repo) as lock:
        recover(site.repo, lock)
        stale = [
            entry
            for entry in list_managed(site)
            if entry.locked is None and not os.path.lexists(entry.path)
        ]
        for entry in stale:
            forget(site, entry.name, entry.path, lock)
        return len(stale)


def forget(site: Site, name: str, path: Path, lock: Lock) -> None:
    """Drop git's record of files that are gone; commits that only it held are kept."""
    found = look(site, name, path)
    _act(site, found, decide(found, force=True, delete_branch=False), lock)


# ── looking: gathers, changes nothing ────────────────────────────────────────


def look(site: Site, name: str, path: Path) -> Found:
    """Everything that the decision rests on."""
    foreign = foreign_repository(site, path)
    if foreign:
        raise WorktreeError(
            Code.WORKTREE_NOT_FOUND,
            f"{name} is a worktree of another repository: {foreign}",
            hint="run this in that repository",
        )
    record = find_record(site, name)
    if record and not record.is_of(site.repo):
        record = None
    entries = list_all(site)
    branch, tip = _birth_branch(site, record, path, entries)
    bases = [record.base, f"origin/{record.base}"] if record and record.base else ["HEAD"]
    found = Found(
        name=name,
        path=path,
        record=record,
        branch=branch,
        tip=tip,
        standing=standing(site.repo, branch, tip, bases) if branch else NOTHING_LOST,
    )
    is_link = path.is_symlink()
    checkout = find_checkout(site, path)
    if checkout is None and is_link and path.resolve().parent != site.base:
        checkout = find_checkout(site, path.resolve())
    is_directory = path.is_dir() and not is_link
    if checkout is None:
        unknown = any(path.iterdir()) if is_directory else path.exists() and not is_link
        return replace(found, unknown_files=unknown)
    listed = next((entry for entry in entries if entry.path == checkout.path), Listed(path))
    head = listed.head.strip("0") and listed.head
    off_branch = bool(head) and not listed.branch
    modules = (admin.MODULES,) if admin.has_modules(checkout.admin) else ()
    found = replace(
        found,
        admin=checkout.admin,
        lock_reason=admin.lock_reason(checkout.admin),
        head=head,
        on=listed.branch,
        detached=standing(site.repo, "", head, bases) if off_branch else NOTHING_LOST,
        repositories=modules,
    )
    if not is_directory:
        return found
    try:
        changes = list_changes(site.repo, checkout)
    except WorktreeError as error:  # a torn index, a lost object
        return replace(found, unreadable=error.message)
    inside = _repositories(site, checkout, changes)
    return replace(found, changes=tuple(changes), repositories=(*inside, *modules))


def _birth_branch(
    site: Site, record: Record | None, path: Path, entries: list[Listed]
) -> tuple[str, str]:
    """The branch it was born on and its tip, unless it is gone, used elsewhere, or was
    deleted and made again by somebody else.
    """
    if record is None or not record.branch:
        return "", ""
    users = [entry for entry in entries if entry.branch == record.branch]
    used_elsewhere = any(entry.path not in {path, path.resolve()} for entry in users)
    if used_elsewhere or is_born_elsewhere(site.repo, record.branch):
        return "", ""
    ref = f"refs/heads/{record.branch}"
    tip = users[0].head if users else resolve(site.repo, [ref])[ref]
    return (record.branch, tip) if tip and tip.strip("0") else ("", "")


def _repositories(site: Site, checkout: Checkout, changes: list[str]) -> tuple[str, ...]:
    """Those that git does not track, and those that it knows as submodules."""
    links = _links(site, checkout) if _may_hold_links(checkout.admin / "index") else []
    inside = dict.fromkeys(name.rstrip("/") for name in (*changes, *links))
    return tuple(name for name in inside if os.path.lexists(checkout.path / name / ".git"))


def _links(site: Site, checkout: Checkout) -> list[str]:
    staged = git(site.repo, "ls-files", "-z", "--stage", at=checkout, timeout=600).text.split("\0")
    return [entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")]


def _may_hold_links(index: Path) -> bool:
    """Whether the index may hold submodules; asking git costs 15 ms at 20,000 files.

    Where the bytes of their mode (0160000) do not occur, there is none. A split index
    (its extension is called "link") keeps its entries in another file.
    """
    try:
        content = read_plain(index, INDEX_BYTES)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # whatever an agent put there is for git to judge
    return len(content) == INDEX_BYTES or b"\0\0\xe0\0" in content or b"link" in content


# ── deciding: pure ───────────────────────────────────────────────────────────


def decide(found: Found, force: bool, delete_branch: bool) -> Decision:
    """What to do about it; raises where only force would do."""
    if not force:
        _refuse(found)
    deletes = delete_branch and bool(found.branch) and (force or found.standing.may_go)
    lost = [found.head] if found.detached.unique_commits else []
    if deletes and found.standing.unique_commits:
        lost.append(found.tip)
    save_files = bool(found.changes)
    anchor = found.head or found.tip  # a copy needs a commit to stand on
    save = [anchor, *lost] if anchor and (lost or save_files) else []
    return Decision(
        delete_branch=deletes,
        save=tuple(dict.fromkeys(save)),
        save_files=save_files,
        hold_aside=found.unknown_files
        or bool(found.repositories or found.unreadable)
        or (save_files and not anchor),
    )


def _refuse(found: Found) -> None:
    name = found.name
    rescue = f"or --force (what it drops is kept for 30 days: bullpen worktree restore {name})"
    if found.lock_reason is not None:
        raise WorktreeError(
            Code.LOCKED,
            f"{name} is locked" + (f": {found.lock_reason}" if found.lock_reason else ""),
            hint=f"bullpen worktree unlock {name}, {rescue}",
        )
    if found.changes:
        count = len(found.changes)
        shown = ", ".join(found.changes[:3]) + (", …" if count > 3 else "")
        raise WorktreeError(
            Code.DIRTY,
            f"{name} has {count} uncommitted file{'s' * (count != 1)} ({shown})",
            hint=f"commit them, {rescue}",
            details={"files": list(found.changes)},
        )
    if found.unreadable:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT,
            f"cannot tell whether {name} holds work: {found.unreadable}",
            hint="repair it, or --force (its files are then kept for 30 days)",
        )
    if found.repositories:
        raise WorktreeError(
            Code.DIRTY,
            f"{name} holds repositories of their own: {', '.join(found.repositories)}",
            hint=f"push them and take them out, {rescue}",
            details={"repositories": list(found.repositories)},
        )
    if not found.detached.may_go:
        raise WorktreeError(
            Code.DIRTY,
            f"{name} has {found.detached.unique_commits} commits that are on no branch",
            hint=f"give them one (git branch NAME {found.head[:12]}), {rescue}",
        )


# ── acting ───────────────────────────────────────────────────────────────────


def _act(site: Site, found: Found, decision: Decision, lock: Lock) -> Removed:
    ref = _save(site, found, decision, lock)
    until = clock.now() + kept.KEEP_FOR if decision.hold_aside else None
    aside = trash.entry_for(site, f"{found.name}.{secrets.token_hex(4)}", until)
    removing = Removing(
        base=str(site.base),
        name=found.name,
        path=str(found.path),
        aside=str(aside),
        admin=found.admin.name if found.admin else "",
        branch=found.branch if decision.delete_branch else "",
        tip=found.tip,
    )
    with journal.announced(site.repo, removing, lock) as entry:
        try:
            if found.path.is_symlink():
                found.path.unlink()
            elif os.path.lexists(found.path):
                trash.throw(found.path, aside)
        except OSError:
            journal.withdraw(entry)  # nothing has happened
            raise
        finish_removal(site.repo, removing, lock)
        journal.withdraw(entry)
    return Removed(
        name=found.name,
        existed=True,
        branch=removing.branch,
        branch_left="" if decision.delete_branch else found.branch,
        unique_commits=found.standing.unique_commits,
        kept=ref,
        aside=aside if until else None,
    )


def _save(site: Site, found: Found, decision: Decision, lock: Lock) -> str:
    """Make the safety copy, before anything is touched."""
    if not decision.save:
        return ""
    record = found.record or Record(
        name=found.name,
        id=found.admin.name if found.admin else "",
        repo=str(site.repo.common_dir),
        branch="",
        base="",
        base_commit=found.head,
        created_at=clock.to_text(clock.now()),
    )
    files = Checkout(found.path, found.admin) if decision.save_files and found.admin else None
    return kept.keep(
        site.repo,
        record,
        decision.save,
        files,
        on=found.on or (found.branch if not found.head else ""),
        tip=found.tip,
        skip=found.repositories,
        fds=[lock.fd],
    )

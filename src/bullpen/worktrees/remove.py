"""Removes worktrees without dropping work that exists nowhere else.

All removals go one way: `inspect` gathers facts, `decide` (pure) says what will be removed, kept
and saved, or refuses; `_act` does it. The act is a rename aside; a background process deletes.
"""

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import clock
from bullpen.worktrees import admin, journal, safety_copies, submodules, trash
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import Checkout, Repository, is_born_elsewhere, resolve
from bullpen.worktrees.journal import Removing
from bullpen.worktrees.listing import Listed, list_all, list_managed
from bullpen.worktrees.merged import Standing, standing
from bullpen.worktrees.own_index import Look, look_at
from bullpen.worktrees.private.store import store_of
from bullpen.worktrees.private.work import NOTHING, PrivateWork, find_private_work
from bullpen.worktrees.records import Record, find_record
from bullpen.worktrees.recover import finish_removal, recover
from bullpen.worktrees.repo_lock import Lock, locked
from bullpen.worktrees.site import Site, find_checkout, foreign_repository, path_for
from bullpen.worktrees.state import changed_names

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
class WorktreeFacts:
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
    private: PrivateWork = NOTHING  # what only its private git holds
    unknown_files: bool = False  # a directory that is no worktree, and not empty
    unreadable: str = ""  # what git said when it could not look at the files

    @property
    def exists(self) -> bool:
        """Whether anything is left of it."""
        return self.admin is not None or bool(self.branch) or os.path.lexists(self.path)


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
            facts = inspect(site, name, path)
            if not facts.exists:
                return Removed(name, existed=False)
            result = _act(site, facts, _decide_unused(facts, force, delete_branch), lock)
        trash.empty(site)
        return result


def plan_removal(
    site: Site, name: str, *, force: bool = False, delete_branch: bool = True, own_lock: str = ""
) -> Removed:
    """What `remove` would do, or the same refusal. The caller's own lock does not count. Touches
    nothing."""
    with reported(f"cannot look at {name}", Code.CLEANUP_FAILED):
        facts = inspect(site, name, path_for(site, name))
        if not facts.exists:
            return Removed(name, existed=False)
        if own_lock and facts.lock_reason == own_lock:
            facts = replace(facts, lock_reason=None)
        return _outcome(facts, _decide_unused(facts, force, delete_branch))


def prune(site: Site, *, dry_run: bool = False) -> int:
    """Drop git's records of managed worktrees whose files are gone; returns how many.

    Only under our base: elsewhere a missing directory may be a disk that is not mounted.
    """
    with reported("cannot prune", Code.CLEANUP_FAILED), locked(site.repo) as lock:
        if not dry_run:
            recover(site.repo, lock)
        stale = [
            entry
            for entry in list_managed(site)
            if entry.locked is None and not os.path.lexists(entry.path)
        ]
        for entry in () if dry_run else stale:
            forget(site, entry.name, entry.path, lock)
        return len(stale)


def forget(site: Site, name: str, path: Path, lock: Lock) -> None:
    """Drop git's record of files that are gone; commits that only it held are kept."""
    facts = inspect(site, name, path)
    _act(site, facts, decide(facts, force=True, delete_branch=False), lock)


# ── looking: gathers, changes nothing ────────────────────────────────────────


def inspect(site: Site, name: str, path: Path) -> WorktreeFacts:
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
    starts = dict.fromkeys([record.target, record.base]) if record and record.base else ()
    bases = [ref for start in starts for ref in (start, f"origin/{start}")] or ["HEAD"]
    facts = WorktreeFacts(
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
        return replace(facts, unknown_files=unknown)
    listed = next((entry for entry in entries if entry.path == checkout.path), Listed(path))
    head = listed.head.strip("0") and listed.head
    off_branch = bool(head) and not listed.branch
    modules = (admin.MODULES,) if submodules.list_work(site.repo, checkout) else ()
    facts = replace(
        facts,
        admin=checkout.admin,
        lock_reason=admin.lock_reason(checkout.admin),
        head=head,
        on=listed.branch,
        detached=standing(site.repo, "", head, bases) if off_branch else NOTHING_LOST,
        repositories=modules,
        private=find_private_work(store_of(site.repo.common_dir, checkout.admin, path)),
    )
    if not is_directory:
        return facts
    try:
        with look_at(site.repo, checkout) as look:
            changes = changed_names(look)
            inside = _repositories(site.repo, checkout, look, changes)
    except WorktreeError as error:  # a torn index, a lost object
        return replace(facts, unreadable=error.message)
    return replace(facts, changes=tuple(changes), repositories=(*inside, *modules))


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


def _repositories(
    repo: Repository, checkout: Checkout, look: Look, changes: list[str]
) -> tuple[str, ...]:
    """Those that git does not track, and those that it knows as submodules, if they hold work."""
    links = look.links()
    inside = dict.fromkeys(name.rstrip("/") for name in (*changes, *links))
    return tuple(
        name
        for name in inside
        if os.path.lexists(look.own.path / name / ".git")
        and not (name in links and submodules.is_without_work(repo, checkout, name))
    )


# ── deciding: pure ───────────────────────────────────────────────────────────


def decide(facts: WorktreeFacts, force: bool, delete_branch: bool) -> Decision:
    """What to do about it; raises where only force would do."""
    if not force:
        _refuse(facts)
    deletes = delete_branch and bool(facts.branch) and (force or facts.standing.may_go)
    lost = [facts.head] if facts.detached.unique_commits else []
    if deletes and facts.standing.unique_commits:
        lost.append(facts.tip)
    lost += facts.private.commits
    save_files = bool(facts.changes)
    anchor = facts.head or facts.tip  # a copy needs a commit to stand on
    is_work = bool(lost or save_files or facts.repositories)
    save = [anchor, *lost] if anchor and is_work else []
    return Decision(
        delete_branch=deletes,
        save=tuple(dict.fromkeys(save)),
        save_files=save_files,
        hold_aside=facts.unknown_files
        or bool(facts.repositories or facts.unreadable or facts.private.unknown)
        or (save_files and not anchor),
    )


def _decide_unused(facts: WorktreeFacts, force: bool, delete_branch: bool) -> Decision:
    """The same; also raises, whatever is forced, while somebody works there."""
    reason = facts.lock_reason or ""
    if reason.startswith((admin.AGENT_RUNS, admin.TASK_WORKS)):
        why, _, stop = reason.partition(" · ")
        raise WorktreeError(
            Code.LOCKED,
            f"{facts.name} is in use: {why}",
            hint=f"{stop or 'bullpen tasks shows it'} · if that is not so, bullpen worktree unlock"
            f" {facts.name}",
        )
    return decide(facts, force, delete_branch)


def _refuse(facts: WorktreeFacts) -> None:
    name = facts.name
    rescue = f"or --force (what it drops is kept for 30 days: bullpen worktree restore {name})"
    if facts.lock_reason is not None:
        raise WorktreeError(
            Code.LOCKED,
            f"{name} is locked" + (f": {facts.lock_reason}" if facts.lock_reason else ""),
            hint=f"bullpen worktree unlock {name}, {rescue}",
        )
    if facts.changes:
        count = len(facts.changes)
        first = ", ".join(facts.changes[:3]) + (", …" if count > 3 else "")
        raise WorktreeError(
            Code.DIRTY,
            f"{name} has {count} uncommitted file{'s' * (count != 1)} ({first})",
            hint=f"commit them, {rescue}",
            details={"files": list(facts.changes)},
        )
    if facts.unreadable:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT,
            f"cannot tell whether {name} holds work: {facts.unreadable}",
            hint="repair it, or --force (its files are then kept for 30 days)",
        )
    if facts.repositories:
        raise WorktreeError(
            Code.DIRTY,
            f"{name} holds repositories of their own: {', '.join(facts.repositories)}",
            hint=f"push them and take them out, {rescue}",
            details={"repositories": list(facts.repositories)},
        )
    if not facts.detached.may_go:
        raise WorktreeError(
            Code.DIRTY,
            f"{name} has {facts.detached.unique_commits} commits that are on no branch",
            hint=f"give them one (git branch NAME {facts.head[:12]}), {rescue}",
        )
    if facts.private.unknown:
        raise WorktreeError(
            Code.DIRTY,
            f"cannot tell whether {name} holds commits: {facts.private.unknown}",
            hint="bullpen explain says more; or --force (its git is then kept for 30 days)",
        )
    if facts.private.names:
        raise WorktreeError(
            Code.DIRTY,
            f"{name} has commits that are on no branch: {', '.join(facts.private.names[:3])}",
            hint=f"give them one (git branch NAME {facts.private.commits[0][:12]}), {rescue}",
        )


# ── acting ───────────────────────────────────────────────────────────────────


def _act(site: Site, facts: WorktreeFacts, decision: Decision, lock: Lock) -> Removed:
    ref = _save(site, facts, decision, lock)
    until = clock.now() + safety_copies.KEEP_FOR if decision.hold_aside else None
    aside = trash.entry_for(site, f"{facts.name}.{secrets.token_hex(4)}", until)
    removing = Removing(
        base=str(site.base),
        name=facts.name,
        path=str(facts.path),
        aside=str(aside),
        admin=facts.admin.name if facts.admin else "",
        branch=facts.branch if decision.delete_branch else "",
        tip=facts.tip,
    )
    with journal.announced(site.repo, removing, lock) as entry:
        try:
            if facts.path.is_symlink():
                facts.path.unlink()
            elif os.path.lexists(facts.path):
                trash.throw(facts.path, aside)
        except OSError:
            journal.withdraw(entry)  # nothing has happened
            raise
        finish_removal(site.repo, removing, lock)
        journal.withdraw(entry)
    return replace(_outcome(facts, decision), kept=ref, aside=aside if until else None)


def _outcome(facts: WorktreeFacts, decision: Decision) -> Removed:
    return Removed(
        name=facts.name,
        existed=True,
        branch=facts.branch if decision.delete_branch else "",
        branch_left="" if decision.delete_branch else facts.branch,
        unique_commits=facts.standing.unique_commits,
    )


def _save(site: Site, facts: WorktreeFacts, decision: Decision, lock: Lock) -> str:
    """Make the safety copy, before anything is touched."""
    if not decision.save:
        return ""
    record = facts.record or Record(
        name=facts.name,
        id=facts.admin.name if facts.admin else "",
        repo=str(site.repo.common_dir),
        branch="",
        base="",
        base_commit=facts.head,
        created_at=clock.to_text(clock.now()),
    )
    files = Checkout(facts.path, facts.admin) if decision.save_files and facts.admin else None
    return safety_copies.keep(
        site.repo,
        record,
        decision.save,
        files,
        on=facts.on or (facts.branch if not facts.head else ""),
        tip=facts.tip,
        skip=facts.repositories,
        fds=[lock.fd],
    )

"""Clean-up by age and in bulk. Uses `remove`, so nothing is dropped that `remove` would refuse."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bullpen import clock
from bullpen.worktrees import safety_copies, trash
from bullpen.worktrees.branches import check_session, is_of_session
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import git
from bullpen.worktrees.listing import created_at, list_all, list_managed
from bullpen.worktrees.merged import standing
from bullpen.worktrees.records import Record, find_record, list_records
from bullpen.worktrees.recover import delete_branch, recover
from bullpen.worktrees.remove import decide, inspect, plan_removal, prune, remove
from bullpen.worktrees.repo_lock import Lock, locked
from bullpen.worktrees.site import Site, path_for

NOT_ENDED = "its agent has not ended"
NEEDS_FORCE = {Code.DIRTY, Code.LOCKED, Code.WORKTREE_CORRUPT}


@dataclass
class Cleaned:
    """What a clean-up did, and what it left alone and why."""

    worktrees: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    pruned: int = 0
    recovered: int = 0
    expired: int = 0
    left: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Cleaned") -> None:
        """What one more clean-up did; a dry run may name a branch in each base."""
        self.worktrees += other.worktrees
        self.branches += [branch for branch in other.branches if branch not in self.branches]
        self.pruned += other.pruned
        self.recovered += other.recovered
        self.expired += other.expired
        self.left |= other.left


def cleanup_orphaned(
    site: Site,
    max_age: timedelta,
    has_ended: Callable[[str], bool],
    *,
    now: datetime | None = None,
    dry_run: bool = False,
) -> Cleaned:
    """Remove worktrees older than `max_age` whose agent has ended: clean and merged ones only."""
    moment = now or clock.now()
    cleaned = Cleaned()
    with reported("cannot clean up", Code.CLEANUP_FAILED):
        for entry in list_managed(site):
            born = created_at(site, entry, find_record(site, entry.name))
            if born is None or moment - born <= max_age:
                continue
            if not has_ended(entry.name):
                cleaned.left[entry.name] = NOT_ENDED
                continue
            _remove_if_safe(site, entry.name, cleaned, dry_run)
    return cleaned


def cleanup_session(
    site: Site,
    session: str,
    why_used: Callable[[str], str],
    *,
    dry_run: bool = False,
) -> Cleaned:
    """Remove the worktrees and branches of one swarm session, whatever their age: clean and merged
    ones only. `why_used` says of a worktree why nobody may take it now."""
    check_session(session)
    cleaned = Cleaned()
    with reported("cannot clean up", Code.CLEANUP_FAILED):
        records = [
            record
            for record in list_records(site.base)
            if record.is_of(site.repo)
            and is_of_session(record.branch, record.role or record.name, record.name, session)
        ]
        there = {entry.name for entry in list_managed(site)}
        for name in (record.name for record in records if record.name in there):
            why = why_used(name)
            if why:
                cleaned.left[name] = why
            else:
                _remove_if_safe(site, name, cleaned, dry_run)
    if records:
        refs = [f"refs/heads/{record.branch}" for record in records]
        of_branches = _cleanup_refs(site, refs, force=False, dry_run=dry_run)
        cleaned.branches = of_branches.branches
        cleaned.left |= of_branches.left
    return cleaned


def cleanup_branches(
    site: Site, prefix: str = "", *, force: bool = False, dry_run: bool = False
) -> Cleaned:
    """Delete branches under the prefix that no worktree uses: merged ones, or with force all.

    What force drops is kept as for worktrees.
    """
    refs = [f"refs/heads/{prefix or site.branch_prefix}/"]
    return _cleanup_refs(site, refs, force=force, dry_run=dry_run)


def _cleanup_refs(site: Site, refs: Sequence[str], *, force: bool, dry_run: bool) -> Cleaned:
    cleaned = Cleaned()
    with reported("cannot clean up", Code.CLEANUP_FAILED), locked(site.repo) as lock:
        if not dry_run:
            recover(site.repo, lock)
        used = {entry.branch for entry in list_all(site)}
        done = git(site.repo, "for-each-ref", "--format=%(objectname) %(refname)", *refs)
        for line in filter(None, done.text.split("\n")):
            tip, ref = line.split(" ", 1)
            branch = ref.removeprefix("refs/heads/")
            if branch in used:
                continue
            lost = standing(site.repo, branch, tip, ["HEAD"])
            if not (force or lost.may_go):
                cleaned.left[branch] = unmerged_text(lost.unique_commits)
            elif dry_run or _delete(site, branch, tip, bool(lost.unique_commits), lock):
                cleaned.branches.append(branch)
    return cleaned


def remove_all(site: Site, *, force: bool = False) -> int:
    """Remove every managed worktree; without force, those that need it are left."""
    return len(_remove_each(site, force, nobody, dry_run=False).worktrees)


def nobody(_name: str) -> str:
    """Why a worktree is in use: it is not."""
    return ""


def full_cleanup(
    site: Site,
    *,
    force: bool = False,
    why_used: Callable[[str], str] = nobody,
    dry_run: bool = False,
) -> Cleaned:
    """Worktrees, orphaned prefix branches, stale references, and the base if it is empty.
    `why_used` says of a worktree why nobody may take it now."""
    cleaned = _remove_each(site, force, why_used, dry_run=dry_run)
    of_branches = cleanup_branches(site, force=force, dry_run=dry_run)
    cleaned.branches = of_branches.branches
    cleaned.left |= of_branches.left
    if dry_run:
        return cleaned
    cleaned.pruned = prune(site)
    trash.empty(site, wait=True)
    _remove_empty_base(site)
    return cleaned


def _remove_each(
    site: Site, force: bool, why_used: Callable[[str], str], *, dry_run: bool
) -> Cleaned:
    cleaned = Cleaned()
    remove_one = plan_removal if dry_run else remove
    for entry in list_managed(site):
        why = why_used(entry.name)
        if why:
            cleaned.left[entry.name] = why
            continue
        try:
            remove_one(site, entry.name, force=force)
        except WorktreeError as error:
            if error.code not in NEEDS_FORCE:
                raise
            cleaned.left[entry.name] = error.message
        else:
            cleaned.worktrees.append(entry.name)
    return cleaned


def gc(site: Site, *, now: datetime | None = None) -> Cleaned:
    """Finish what crashes left, delete what was thrown away, drop copies past their time."""
    with reported("cannot clean up", Code.CLEANUP_FAILED):
        with locked(site.repo) as lock:
            recovered = recover(site.repo, lock)
            expired = safety_copies.expire(site.repo, now or clock.now())
        trash.empty(site, now)
        return Cleaned(recovered=recovered, expired=expired)


def reason_to_keep(site: Site, name: str) -> str | None:
    """Why a clean-up leaves that worktree alone; empty when it may go, None when there is none."""
    path = path_for(site, name)
    if not os.path.lexists(path):
        return None
    try:
        facts = inspect(site, name, path)
        decide(facts, force=False, delete_branch=True)
    except WorktreeError as error:
        return error.message
    if facts.standing.may_go:
        return ""
    return unmerged_text(facts.standing.unique_commits)


def unmerged_text(commits: int) -> str:
    """Why a branch is left."""
    return f"{commits} commit{'s exist' if commits != 1 else ' exists'} nowhere else"


def _remove_if_safe(site: Site, name: str, cleaned: Cleaned, dry_run: bool) -> None:
    try:
        facts = inspect(site, name, path_for(site, name))
        decide(facts, force=False, delete_branch=True)
        if not facts.standing.may_go:
            cleaned.left[name] = unmerged_text(facts.standing.unique_commits)
            return
        if not dry_run:
            remove(site, name)
    except WorktreeError as error:
        if error.code not in NEEDS_FORCE:
            raise
        cleaned.left[name] = error.message
    else:
        cleaned.worktrees.append(name)


def _delete(site: Site, branch: str, tip: str, holds_work: bool, lock: Lock) -> bool:
    if holds_work:
        record = _record_for(site, branch, tip)
        safety_copies.keep(site.repo, record, [tip], None, on=branch, tip=tip, fds=[lock.fd])
    return delete_branch(site.repo, branch, tip, lock)


def _record_for(site: Site, branch: str, tip: str) -> Record:
    return Record(
        name=branch.replace("/", "~"),
        id="",
        repo=str(site.repo.common_dir),
        branch=branch,
        base="",
        base_commit=tip,
        created_at=clock.to_text(clock.now()),
    )


def _remove_empty_base(site: Site) -> None:
    """The base goes when nothing but our own empty directories is in it."""
    for directory in (site.pool_dir, site.pool_dir.parent, site.making, site.trash, site.records):
        _rmdir(directory)
    _rmdir(site.base)


def _rmdir(directory: os.PathLike[str]) -> None:
    try:
        os.rmdir(directory)  # noqa: PTH106
    except OSError:
        return  # not there, or not empty: both are fine

"""Undoes or finishes an intent, for its owner or for the next caller. Every step can be repeated.

A half-made set is rolled back. A removal is finished once its directory has been moved aside;
before that nothing has happened, and the intent is dropped: somebody may have worked there since.
A fast-forward is finished once the branch has moved; before that the files are put back.
"""

import os
import secrets
from pathlib import Path

from bullpen.worktrees import admin, journal, prepare, trash
from bullpen.worktrees.git import Repository, git, resolve
from bullpen.worktrees.journal import FastForwarding, Making, NewWorktree, Removing
from bullpen.worktrees.landing import fast_forward, landed
from bullpen.worktrees.private.store import store_of
from bullpen.worktrees.private.work import save_store
from bullpen.worktrees.records import drop_record, find_record, from_json, write_record
from bullpen.worktrees.repo_lock import Lock
from bullpen.worktrees.site import Site, points_to


def recover(repo: Repository, lock: Lock) -> int:
    """Deal with everything that dead owners left behind; returns how many intents."""
    admin.delete_leftovers(repo)
    with journal.abandoned(repo, lock) as intents:
        for entry, intent in intents:
            match intent:
                case Making():
                    roll_back(repo, intent, entry.key, lock)
                case Removing():
                    if is_decided(intent):
                        finish_removal(repo, intent, lock)
                case FastForwarding():
                    fast_forward.recover(repo, intent, entry.key, lock)
            journal.withdraw(entry)
        return len(intents)


def roll_back(repo: Repository, making: Making, key: str, lock: Lock) -> None:
    """Take away whatever of the set exists; `key` is the intent's, in the branch's reflog."""
    site = Site(repo, Path(making.base))
    for member in making.members:
        for directory in (site.pool_dir / member.id, site.making / member.id, Path(member.path)):
            # The path may meanwhile be somebody else's; ours points to our administration.
            ours = directory.name == member.id or points_to(directory, repo.admin_dir / member.id)
            if ours and os.path.lexists(directory):
                trash.throw(directory, trash.entry_for(site, f"{member.id}.{secrets.token_hex(3)}"))
        admin.drop(repo, member.id)
        if member.branch and _we_made(repo, member, key):
            delete_branch(repo, member.branch, member.commit, lock)
        _roll_back_record(site, member)
    trash.empty(site)


def is_decided(removing: Removing) -> bool:
    """Whether the point of no return has been passed."""
    return os.path.lexists(removing.aside) or not os.path.lexists(removing.path)


def finish_removal(repo: Repository, removing: Removing, lock: Lock) -> None:
    """Everything after the directory has been moved aside."""
    site = Site(repo, Path(removing.base))
    if removing.admin:
        admin.save_modules(repo.admin_dir / removing.admin, Path(removing.aside))
        store = store_of(repo.common_dir, repo.admin_dir / removing.admin, Path(removing.path))
        save_store(store, Path(removing.aside))
        admin.drop(repo, removing.admin)
    deleted = bool(removing.branch) and delete_branch(repo, removing.branch, removing.tip, lock)
    if deleted:
        landed.forget(repo, removing.tip)
    record = find_record(site, removing.name)
    if record and record.is_of(repo):
        ref = f"refs/heads/{record.branch}"
        if deleted or not record.branch or resolve(repo, [ref])[ref] is None:
            drop_record(site, removing.name)
            prepare.setup_log(site, removing.name).unlink(missing_ok=True)


def delete_branch(repo: Repository, branch: str, tip: str, lock: Lock) -> bool:
    """Delete the branch if it is still at `tip`; one that moved or is gone is left alone."""
    ref = f"refs/heads/{branch}"
    done = git(repo, "update-ref", "-d", ref, tip, fds=[lock.fd], accept=(0, 1, 128))
    settings = (repo.common_dir / "config").read_text(errors="replace")
    if done.code == 0 and f'[branch "{branch}"]' in settings:
        # The old branch's upstream must not meet a new branch of its name.
        section = f"branch.{branch}"
        git(repo, "config", "--remove-section", section, fds=[lock.fd], accept=(0, 1, 128))
    return done.code == 0


def _we_made(repo: Repository, member: NewWorktree, key: str) -> bool:
    """Whether this very intent created the branch: its key is in the branch's reflog."""
    done = git(
        repo,
        *("log", "-g", "-1", "--format=%gs", f"refs/heads/{member.branch}", "--"),
        accept=(0, 128),
    )
    return key in done.text


def _roll_back_record(site: Site, member: NewWorktree) -> None:
    record = find_record(site, member.name) if member.name else None
    if record and record.id == member.id:
        if member.previous_record:
            write_record(site, from_json(member.previous_record))
        else:
            drop_record(site, member.name)

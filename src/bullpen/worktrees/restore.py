"""Brings back what a removal dropped, from its safety copy."""

from dataclasses import replace
from pathlib import Path

from bullpen.worktrees import safety_copies, submodules, trash
from bullpen.worktrees.create import ensure, make
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import BIRTH, Checkout, git, resolve
from bullpen.worktrees.listing import list_all
from bullpen.worktrees.plan import Spec, plan_many
from bullpen.worktrees.records import Record
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, exists, path_for
from bullpen.worktrees.state import get_checkout


def restore(site: Site, name: str) -> Path:
    """Make the worktree again as it was: branch, head, and uncommitted files as such."""
    if exists(site, name):
        raise WorktreeError(
            Code.WORKTREE_EXISTS,
            f"worktree {name} exists: {path_for(site, name)}",
            hint=f"bullpen worktree remove {name}, then restore again",
        )
    with reported(f"cannot restore {name}"):
        copy = _latest(site, name)
        record, on, tip = safety_copies.contents(site.repo, copy)
        head = git(site.repo, "rev-parse", f"{copy.commit}^1").text.strip()
        spec = Spec(
            name=name,
            branch=record.branch,
            base=head,
            detached=not record.branch or on != record.branch,
            role=record.role,
            parent=record.parent,
            depth=record.depth,
            ports=record.ports.count if record.ports else 0,
        )
        path = _make_worktree(site, spec, record, head)
        checkout = get_checkout(site, name)
        if on != record.branch:
            _bring_back_branches(site, checkout, record, on, tip, head)
        _bring_back_files(site, checkout, copy)
        saved = trash.find_saved(site, name)
        if saved is not None:
            submodules.initialise(site.repo, checkout, head, saved)
        return path


def _latest(site: Site, name: str) -> safety_copies.SafetyCopy:
    copies = safety_copies.list_safety_copies(site.repo)
    latest = next((copy for copy in copies if copy.name == name), None)
    if latest is None:
        others = sorted({copy.name for copy in copies})
        raise WorktreeError(
            Code.WORKTREE_NOT_FOUND,
            f"nothing is kept of {name}",
            hint=f"there are copies of: {', '.join(others)}" if others else "no copies are kept",
        )
    return latest


def _make_worktree(site: Site, spec: Spec, record: Record, head: str) -> Path:
    """The worktree at the saved head; the branch is made again, or is still there as it was."""
    ref = f"refs/heads/{record.branch}"
    tip = None if spec.detached else resolve(site.repo, [ref])[ref]
    if tip == head:
        return ensure(site, spec)
    plans = plan_many(site, [spec])
    again = [replace(plan, record=replace(record, id=plan.member.id)) for plan in plans]
    return make(site, again)[spec.name]


def _bring_back_branches(
    site: Site, checkout: Checkout, record: Record, on: str, tip: str, head: str
) -> None:
    """For a worktree that was not on its birth branch: that branch, and the one it was on."""
    born, current = f"refs/heads/{record.branch}", f"refs/heads/{on}"
    with locked(site.repo) as lock:
        commits = resolve(site.repo, [born, current, f"{tip}^{{commit}}"])
        if record.branch and commits[born] is None and commits[f"{tip}^{{commit}}"]:
            words = ("update-ref", "--create-reflog", "-m", BIRTH, born, tip, "0" * len(tip))
            git(site.repo, *words, fds=[lock.fd])
        used = {entry.branch for entry in list_all(site)}
        if on and commits[current] == head and on not in used:
            git(site.repo, "symbolic-ref", "HEAD", current, at=checkout, fds=[lock.fd])


def _bring_back_files(site: Site, checkout: Checkout, copy: safety_copies.SafetyCopy) -> None:
    """Write the saved tree out, then let the index forget it: changes show as uncommitted."""
    git(
        site.repo,
        "read-tree",
        "-m",
        "-u",
        "--no-recurse-submodules",
        "HEAD",
        copy.commit,
        at=checkout,
        timeout=600,
    )
    git(site.repo, "reset", "--quiet", "--mixed", at=checkout, timeout=600)

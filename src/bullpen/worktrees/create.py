"""Makes worktrees: all of a set or none, and never a half-made one at its path.

A set goes through these steps. Killed between any two, it is rolled back by the next caller
(`recover`):

    lock    intent in the journal; branches in one ref transaction; git told of each
    -       files checked out in parallel under `.making/`; untracked files, persona
    lock    each renamed to its path; records written
    -       set-up commands, in the worktree
    lock    git's locks lifted; intent withdrawn: from here on the set exists
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bullpen.errors import BullpenError
from bullpen.worktrees import admin, journal, own_index, ports, prepare, submodules
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.exclude import exclude_base
from bullpen.worktrees.git import (
    BIRTH,
    CHECKOUT_SECONDS,
    Checkout,
    Repository,
    git,
    is_born_elsewhere,
    resolve,
)
from bullpen.worktrees.journal import IntentFile, Making
from bullpen.worktrees.plan import Spec, WorktreePlan, exists_already, plan_again, plan_many
from bullpen.worktrees.pool import pick, refresh_index
from bullpen.worktrees.records import find_record
from bullpen.worktrees.recover import recover, roll_back
from bullpen.worktrees.remove import forget
from bullpen.worktrees.repo_lock import Lock, locked
from bullpen.worktrees.site import Site, find_checkout, foreign_repository, is_intact, path_for
from bullpen.worktrees.state import corrupt

SIDE_BY_SIDE = 8
FULL_BYTES = 1 << 20
T = TypeVar("T")


def create(site: Site, spec: Spec) -> Path:
    """Make one worktree; its absolute path. On any failure nothing of it is left."""
    return create_many(site, [spec])[spec.name]


def create_many(site: Site, specs: Sequence[Spec]) -> dict[str, Path]:
    """Make a set of worktrees, all or none; absolute path by name."""
    if not specs:
        return {}
    with reported(f"cannot make {', '.join(spec.name for spec in specs)}"):
        return make(site, plan_many(site, specs))


def ensure(site: Site, spec: Spec) -> Path:
    """The worktree of that name: reused as it is, checked out again, or made."""
    return ensure_many(site, [spec])[spec.name]


def ensure_many(site: Site, specs: Sequence[Spec]) -> dict[str, Path]:
    """The same for a set: all that are missing are made, or none; absolute path by name."""
    paths = {spec.name: path_for(site, spec.name) for spec in specs}
    with reported(f"cannot prepare {', '.join(paths)}"):
        with locked(site.repo) as lock:
            recover(site.repo, lock)
            for name, path in paths.items():
                if _is_being_made(site.repo, path):
                    raise being_made(name)
        missing = [spec for spec in specs if not _is_there(site, spec)]
        for spec in specs:
            if spec not in missing:
                reserve_ports(site, spec.name, spec.ports)
        again = {spec.name: plan for spec in missing if (plan := _plan_again(site, spec))}
        new = [spec for spec in missing if spec.name not in again]
        plans = [*again.values(), *(plan_many(site, new) if new else [])]
        return paths | make(site, plans) if plans else paths


def reserve_ports(site: Site, name: str, count: int) -> None:
    """Have so many ports on record for a worktree that is there: it may have been made before
    anybody needed them. What it has stays, unless that is too little."""
    if count == 0:
        return
    with reported(f"cannot reserve ports for {name}"), locked(site.repo) as lock:
        checkout = find_checkout(site, path_for(site, name))
        if checkout is not None:
            ports.keep_or_reserve(site, checkout, count, lock)


def _is_there(site: Site, spec: Spec) -> bool:
    path = path_for(site, spec.name)
    checkout = find_checkout(site, path)
    if checkout and is_intact(checkout):
        return True
    if os.path.lexists(path):
        raise _not_ours(site, spec.name, path)
    return False


def _plan_again(site: Site, spec: Spec) -> WorktreePlan | None:
    """The plan to check out our branch again whose worktree is gone; None if there is no such
    branch."""
    record = find_record(site, spec.name)
    if not (record and record.is_of(site.repo) and record.branch == spec.birth_branch != ""):
        return None
    ref = f"refs/heads/{record.branch}"
    tip = resolve(site.repo, [ref])[ref]
    if tip is None or is_born_elsewhere(site.repo, record.branch):
        return None
    return plan_again(site, spec, record, tip)


# ── acting ───────────────────────────────────────────────────────────────────


def make(site: Site, plans: Sequence[WorktreePlan]) -> dict[str, Path]:
    """Carry the plans out, all or none."""
    repo = site.repo
    with contextlib.ExitStack() as stack:
        with locked(repo) as lock:
            recover(repo, lock)
            _check_free(site, plans, lock)
            paths = [Path(plan.member.path) for plan in plans]
            exclude_base(site.base, [path.name for path in paths if path.parent == site.base])
            site.making.mkdir(mode=0o700, parents=True, exist_ok=True)
            plans = _use_pool(site, plans)
            making = Making(str(site.base), tuple(plan.member for plan in plans))
            entry = stack.enter_context(journal.announced(repo, making, lock))
            stack.enter_context(_undone_on_failure(site, making, entry))
            checkouts = _register(site, plans, entry, lock)
        _side_by_side(
            lambda pair: _fill(site, *pair, entry), list(zip(plans, checkouts, strict=True))
        )
        with locked(repo) as lock:
            _put_in_place(site, plans, lock)
            if not any(plan.spec.setup for plan in plans):
                _conclude(site, plans, entry)
                return {plan.spec.name: Path(plan.member.path) for plan in plans}
        _side_by_side(
            lambda plan: prepare.run_setup(
                site,
                plan.spec.name,
                Checkout(Path(plan.member.path), repo.admin_dir / plan.member.id),
                plan.spec.setup,
                plan.spec.setup_sandbox,
                ports.find_port_variables(Path(plan.member.path)),
                [entry.fd],
            ),
            list(plans),
        )
        with locked(repo):
            _conclude(site, plans, entry)
        return {plan.spec.name: Path(plan.member.path) for plan in plans}


@contextlib.contextmanager
def _undone_on_failure(site: Site, making: Making, entry: IntentFile) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # If undoing fails as well (a full disk), the first error is the one to tell, and
        # the intent stays in the journal for the next caller.
        with contextlib.suppress(OSError, BullpenError), locked(site.repo) as lock:
            roll_back(site.repo, making, entry.key, lock)
            journal.withdraw(entry)
        raise


def _check_free(site: Site, plans: Sequence[WorktreePlan], lock: Lock) -> None:
    for plan in plans:
        path = Path(plan.member.path)
        if os.path.lexists(path):
            raise exists_already(plan.spec.name, path)
        if _is_being_made(site.repo, path):
            raise being_made(plan.spec.name)
        stale = find_checkout(site, path)
        if stale:
            # The files were deleted by hand; git still has its record of them.
            if admin.lock_reason(stale.admin) is not None:
                raise WorktreeError(
                    Code.LOCKED,
                    f"the files of {plan.spec.name} are gone, but git's record of it is locked",
                    hint=f"bullpen worktree remove --force {plan.spec.name}",
                )
            forget(site, plan.spec.name, path, lock)


def _use_pool(site: Site, plans: Sequence[WorktreePlan]) -> list[WorktreePlan]:
    """Give the plans ready checkouts, as many as there are."""
    ready = pick(site, [plan for plan in plans if plan.record])
    result = []
    for plan in plans:
        taken = ready.pop() if plan.record and ready else None
        if taken and plan.record:
            plan = replace(
                plan,
                member=replace(plan.member, id=taken.id),
                record=replace(plan.record, id=taken.id),
                ready=taken,
            )
        result.append(plan)
    return result


def _register(
    site: Site, plans: Sequence[WorktreePlan], entry: IntentFile, lock: Lock
) -> list[Checkout]:
    """Branches first, in one transaction; then git's record of each worktree."""
    lines = [
        f"create refs/heads/{plan.member.branch} {plan.member.commit}\n"
        for plan in plans
        if plan.member.branch
    ]
    if lines:
        _create_branches(site.repo, "".join(lines), entry.key, lock)
    if any(plan.spec.persona for plan in plans):
        prepare.exclude_persona(site.repo, lock)
    return [_register_one(site, plan, lock) for plan in plans]


def _create_branches(repo: Repository, commands: str, key: str, lock: Lock) -> None:
    try:
        git(
            repo,
            *("update-ref", "--create-reflog", "-m", f"{BIRTH} {key}", "--stdin"),
            stdin=commands.encode(),
            fds=[lock.fd],
        )
    except WorktreeError as error:
        # Created since we looked, or `a` stands in the way of `a/b` (there, or in this set).
        complaint = str(error.details.get("git", ""))
        if "exists" not in complaint and "at the same time" not in complaint:
            raise
        raise WorktreeError(
            Code.BRANCH_EXISTS,
            f"cannot create the branch: {complaint.removeprefix('fatal: ')}",
            hint="choose another name",
            details=error.details,
        ) from error


def _register_one(site: Site, plan: WorktreePlan, lock: Lock) -> Checkout:
    making = site.making / plan.member.id
    path = Path(plan.member.path)
    if plan.ready is None:
        registered = admin.add(site.repo, plan.member.id, making, path, plan.head, lock)
        return Checkout(making, registered)
    checkout = Checkout(making, site.repo.admin_dir / plan.member.id)
    admin.set_lock(checkout.admin, admin.BEING_MADE)
    plan.ready.path.rename(making)
    admin.write_path(checkout.admin, path)
    branch = plan.spec.birth_branch
    words = (
        ["symbolic-ref", "-m", "bullpen: handed out", "HEAD", f"refs/heads/{branch}"]
        if branch
        else ["update-ref", "--no-deref", "HEAD", plan.member.commit]
    )
    git(site.repo, *words, at=checkout, fds=[lock.fd])
    return checkout


def _fill(site: Site, plan: WorktreePlan, checkout: Checkout, entry: IntentFile) -> None:
    """Write the files: slow, outside the lock, in a directory that nobody else uses."""
    if plan.ready is None:
        words = ["reset", "--hard", "--quiet", "--no-recurse-submodules"]
    elif plan.ready.commit != plan.member.commit:
        words = [
            "read-tree",
            "-m",
            "-u",
            "--no-recurse-submodules",
            plan.ready.commit,
            plan.member.commit,
        ]
    else:
        words = []
    if words:
        try:
            git(site.repo, *words, at=checkout, timeout=CHECKOUT_SECONDS, fds=[entry.fd])
        except WorktreeError as error:
            # Git says which file it could not write, but not why.
            if shutil.disk_usage(checkout.path).free < FULL_BYTES:
                error.hint = f"the disk of {site.base} is full: make room and try again"
            raise
    if plan.record is None:
        refresh_index(site.repo, checkout)
    if words:
        own_index.seed(site.repo, checkout, plan.member.commit)
    # One for the pool gets them when it is handed out.
    if plan.record is not None and _may_have_submodules(checkout):
        submodules.initialise(site.repo, checkout, plan.member.commit)
    prepare.copy_untracked(site, plan.spec.copy, checkout.path)
    if plan.spec.persona:
        prepare.place_persona(site.repo, checkout, plan.spec.persona)


def _may_have_submodules(checkout: Checkout) -> bool:
    """Of files that were written just now. Asking git of the commit costs a process."""
    is_sparse = (checkout.admin / "info" / "sparse-checkout").exists()
    return is_sparse or os.path.lexists(checkout.path / ".gitmodules")


def _put_in_place(site: Site, plans: Sequence[WorktreePlan], lock: Lock) -> None:
    for plan in plans:
        path = Path(plan.member.path)
        # rename(2) would silently replace an empty directory.
        if os.path.lexists(path):
            raise exists_already(plan.spec.name, path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            (site.making / plan.member.id).rename(path)
        except OSError as error:
            # Another repository's worktree of that name came first: the lock is not shared.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            raise exists_already(plan.spec.name, path) from error
        if plan.record:
            ports.write_with_ports(site, plan.record, plan.spec.ports, lock)


def _conclude(site: Site, plans: Sequence[WorktreePlan], entry: IntentFile) -> None:
    for plan in plans:
        registered = site.repo.admin_dir / plan.member.id
        if plan.lock_reason:
            admin.set_lock(registered, plan.lock_reason)
        else:
            admin.clear_lock(registered)
    journal.withdraw(entry)


def _side_by_side(work: Callable[[T], None], items: list[T]) -> None:
    """Run the work on all items at once; the first failure is raised when all have ended."""
    if len(items) == 1:
        work(items[0])
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(len(items), SIDE_BY_SIDE)) as pool:
        list(pool.map(work, items))


# ── refusals ─────────────────────────────────────────────────────────────────


def being_made(name: str) -> WorktreeError:
    """The error for a worktree that another process is making."""
    return WorktreeError(
        Code.WORKTREE_EXISTS,
        f"worktree {name} is being made by another process",
        hint="wait for it, or choose another name",
    )


def _is_being_made(repo: Repository, path: Path) -> bool:
    return any(
        isinstance(intent, Making) and any(member.path == str(path) for member in intent.members)
        for intent in journal.list_pending(repo)
    )


def _not_ours(site: Site, name: str, path: Path) -> WorktreeError:
    """Something lies there that is not an intact worktree of this repository."""
    foreign = foreign_repository(site, path)
    if foreign is None:
        return corrupt(name, path)
    return WorktreeError(
        Code.WORKTREE_EXISTS,
        f"{path} is a worktree of another repository: {foreign}",
        hint="choose another name",
    )

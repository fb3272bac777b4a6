"""Making worktrees: all of a set or none, and never half of one in sight.

A set goes through these steps; killed between any two, it is rolled back by the
next caller (`recover`):

    lock    intent in the journal; branches in one ref transaction; git told of each
    -       files checked out side by side under `.making/`; untracked files, persona
    lock    each renamed to its place; records written
    -       set-up commands, in place
    lock    git's locks lifted; intent withdrawn: from here on the set exists
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bullpen import clock
from bullpen.errors import BullpenError
from bullpen.model.names import check_name, subtree_name
from bullpen.worktrees import admin, journal, prepare
from bullpen.worktrees.branches import check_branch
from bullpen.worktrees.errors import Code, WorktreeError, reported
from bullpen.worktrees.git import (
    CHECKOUT_SECONDS,
    Checkout,
    Repository,
    current_branch,
    git,
    resolve,
    validate,
)
from bullpen.worktrees.journal import Entry, Making, Member
from bullpen.worktrees.listing import list_all
from bullpen.worktrees.pool import Ready, pick, settle
from bullpen.worktrees.records import Record, find_record, to_json, write_record
from bullpen.worktrees.recover import recover, roll_back
from bullpen.worktrees.remove import forget
from bullpen.worktrees.repo_lock import Lock, locked
from bullpen.worktrees.site import Site, find_checkout, foreign_repository, is_intact, path_for
from bullpen.worktrees.state import corrupt

SIDE_BY_SIDE = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Spec:
    """What one worktree should be."""

    name: str
    branch: str = ""  # default: the name
    base: str = ""  # default: the current branch, else HEAD
    detached: bool = False
    role: str = ""
    parent: str = ""
    depth: int = 0
    persona: Path | None = None
    copy: tuple[str, ...] = ()
    setup: str = ""

    @property
    def birth_branch(self) -> str:
        return "" if self.detached else self.branch or self.name


@dataclass(frozen=True)
class Plan:
    """A spec that has been checked and resolved; everything that making it needs."""

    spec: Spec
    member: Member
    record: Record | None  # None for a pool entry
    head: str  # what HEAD will say
    lock_reason: str = ""  # stays locked with it; empty: unlocked when done
    ready: Ready | None = None  # a pooled checkout to use


def branch_name(spec: Spec) -> str:
    """The branch that the worktree is born on; empty when detached."""
    return spec.birth_branch


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
    path = path_for(site, spec.name)
    with reported(f"cannot prepare {spec.name}"):
        with locked(site.repo) as lock:
            recover(site.repo, lock)
            if _is_being_made(site.repo, path):
                raise being_made(spec.name)
        checkout = find_checkout(site, path)
        if checkout and is_intact(checkout):
            return path
        if os.path.lexists(path):
            raise _not_ours(site, spec.name, path)
        record = find_record(site, spec.name)
        if record and record.is_of(site.repo) and record.branch == spec.birth_branch != "":
            ref = f"refs/heads/{record.branch}"
            tip = resolve(site.repo, [ref])[ref]
            if tip is not None:
                return make(site, [_plan_again(site, spec, record, tip)])[spec.name]
        return make(site, plan_many(site, [spec]))[spec.name]


# ── planning: reads, touches nothing ─────────────────────────────────────────


def plan_many(site: Site, specs: Sequence[Spec]) -> list[Plan]:
    """Check every spec and resolve what it names."""
    names = [spec.name for spec in specs]
    births = [spec.birth_branch for spec in specs if not spec.detached]
    for word, values in (("worktree", names), ("branch", births)):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise WorktreeError(Code.INVALID, f"{word} {twice[0]} is asked for twice")
    for spec in specs:
        _check_spec(site, spec)
    commits = _resolve_bases(site, specs)
    return [_plan(site, spec, commits[spec.base]) for spec in specs]


def _check_spec(site: Site, spec: Spec) -> None:
    try:
        # A subtree bears its branch's name, whatever letters that has.
        if not spec.branch or spec.name != subtree_name(spec.branch):
            check_name("worktree", spec.name)
    except BullpenError as error:
        raise WorktreeError(Code.INVALID, error.message, hint=error.hint) from error
    check_branch(spec.birth_branch or spec.name)
    if spec.depth > site.max_depth:
        raise WorktreeError(
            Code.DEPTH_EXCEEDED,
            f"{spec.name} would be {spec.depth} levels below a person: "
            f"at most {site.max_depth} are allowed",
            hint="worktrees.max_depth in config.yaml",
        )
    prepare.check_persona(spec.persona)
    prepare.check_patterns(spec.copy)
    if os.path.lexists(path_for(site, spec.name)):
        raise _exists(spec.name, path_for(site, spec.name))


def _resolve_bases(site: Site, specs: Sequence[Spec]) -> dict[str, str]:
    """The commit of each base; also refuses branches that exist, in the same git call."""
    wanted = {spec.base: f"{spec.base or 'HEAD'}^{{commit}}" for spec in specs}
    refs = {f"refs/heads/{spec.birth_branch}": spec for spec in specs if spec.birth_branch}
    found = resolve(site.repo, [*wanted.values(), *refs])
    for ref, spec in refs.items():
        if found[ref] is not None:
            raise WorktreeError(
                Code.BRANCH_EXISTS,
                f"branch {spec.birth_branch} exists already",
                hint=f"choose another name, or delete it: git branch -d {spec.birth_branch}",
            )
    commits = {}
    for base, revision in wanted.items():
        commit = found[revision]
        if commit is None:
            raise _no_base(site, base)
        commits[base] = commit
    return commits


def _no_base(site: Site, base: str) -> WorktreeError:
    validate(site.repo)
    if not base:
        return WorktreeError(
            Code.REF_NOT_FOUND,
            f"the current branch of {site.repo} has no commit yet",
            hint="name the branch to start from",
        )
    remote = f"refs/remotes/origin/{base}"
    known = resolve(site.repo, [remote])[remote] is not None
    return WorktreeError(
        Code.REF_NOT_FOUND,
        f"no branch, tag or commit called {base!r} in {site.repo}",
        hint=f"did you mean origin/{base}?" if known else "git branch --all lists what there is",
    )


def _plan(site: Site, spec: Spec, commit: str) -> Plan:
    # Where git itself makes the directory, it writes "-" for what a ref cannot hold.
    id = f"{spec.name.replace('~', '-')}.{secrets.token_hex(3)}"
    older = find_record(site, spec.name)
    branch = spec.birth_branch
    return Plan(
        spec=spec,
        member=Member(
            id=id,
            name=spec.name,
            path=str(path_for(site, spec.name)),
            branch=branch,
            commit=commit,
            previous_record=to_json(older) if older else "",
        ),
        record=Record(
            name=spec.name,
            id=id,
            repo=str(site.repo.common_dir),
            branch=branch,
            # HEAD moves on; what it meant when the worktree was made is the branch.
            base=current_branch(site.repo) or "" if spec.base in {"", "HEAD"} else spec.base,
            base_commit=commit,
            created_at=clock.to_text(clock.now()),
            role=spec.role,
            parent=spec.parent,
            depth=spec.depth,
        ),
        head=f"ref: refs/heads/{branch}" if branch else commit,
    )


def _plan_again(site: Site, spec: Spec, record: Record, tip: str) -> Plan:
    """Check out a branch of ours that lost its worktree; it is not created, nor rolled back."""
    prepare.check_persona(spec.persona)
    prepare.check_patterns(spec.copy)
    for other in list_all(site):
        if other.branch == record.branch and other.path != path_for(site, spec.name):
            raise WorktreeError(
                Code.BRANCH_EXISTS,
                f"branch {record.branch} is checked out at {other.path}",
                hint="switch that worktree to another branch, or choose another name",
            )
    fresh = _plan(site, spec, tip)
    return replace(
        fresh,
        member=replace(fresh.member, branch=""),
        record=replace(record, id=fresh.member.id),
    )


# ── acting ───────────────────────────────────────────────────────────────────


def make(site: Site, plans: Sequence[Plan]) -> dict[str, Path]:
    """Carry the plans out, all or none."""
    repo = site.repo
    with contextlib.ExitStack() as held:
        with locked(repo) as lock:
            recover(repo, lock)
            _check_free(site, plans, lock)
            site.making.mkdir(mode=0o700, parents=True, exist_ok=True)
            plans = _use_pool(site, plans)
            making = Making(str(site.base), tuple(plan.member for plan in plans))
            entry = held.enter_context(journal.announced(repo, making, lock))
            held.enter_context(_undone_on_failure(site, making, entry))
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
                site, plan.spec.name, Path(plan.member.path), plan.spec.setup, [entry.fd]
            ),
            list(plans),
        )
        with locked(repo):
            _conclude(site, plans, entry)
        return {plan.spec.name: Path(plan.member.path) for plan in plans}


@contextlib.contextmanager
def _undone_on_failure(site: Site, making: Making, entry: Entry) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # If undoing fails as well (a full disk), the first error is the one to tell, and
        # the intent stays in the journal for the next caller.
        with contextlib.suppress(OSError, BullpenError), locked(site.repo) as lock:
            roll_back(site.repo, making, entry.key, lock)
            journal.withdraw(entry)
        raise


def _check_free(site: Site, plans: Sequence[Plan], lock: Lock) -> None:
    for plan in plans:
        path = Path(plan.member.path)
        if os.path.lexists(path):
            raise _exists(plan.spec.name, path)
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


def _use_pool(site: Site, plans: Sequence[Plan]) -> list[Plan]:
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


def _register(site: Site, plans: Sequence[Plan], entry: Entry, lock: Lock) -> list[Checkout]:
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
            *("update-ref", "--create-reflog", "-m", f"bullpen {key}: born here", "--stdin"),
            stdin=commands.encode(),
            fds=[lock.fd],
        )
    except WorktreeError as error:
        # Created since we looked, or `a` stands in the way of `a/b` (there, or in this set).
        said = str(error.details.get("git", ""))
        if "exists" not in said and "at the same time" not in said:
            raise
        raise WorktreeError(
            Code.BRANCH_EXISTS,
            f"cannot create the branch: {said.removeprefix('fatal: ')}",
            hint="choose another name",
            details=error.details,
        ) from error


def _register_one(site: Site, plan: Plan, lock: Lock) -> Checkout:
    making = site.making / plan.member.id
    path = Path(plan.member.path)
    if plan.ready is None:
        registered = admin.add(site.repo, plan.member.id, making, path, plan.head, lock)
        return Checkout(making, registered)
    checkout = Checkout(making, site.repo.admin_dir / plan.member.id)
    admin.set_lock(checkout.admin, admin.BEING_MADE)
    plan.ready.path.rename(making)
    admin.place(checkout.admin, path)
    branch = plan.spec.birth_branch
    words = (
        ["symbolic-ref", "-m", "bullpen: handed out", "HEAD", f"refs/heads/{branch}"]
        if branch
        else ["update-ref", "--no-deref", "HEAD", plan.member.commit]
    )
    git(site.repo, *words, at=checkout, fds=[lock.fd])
    return checkout


def _fill(site: Site, plan: Plan, checkout: Checkout, entry: Entry) -> None:
    """Everything that may take long, and that nobody else can meet."""
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
        git(site.repo, *words, at=checkout, timeout=CHECKOUT_SECONDS, fds=[entry.fd])
    if plan.record is None:
        settle(site.repo, checkout)
    prepare.copy_untracked(site, plan.spec.copy, checkout.path)
    if plan.spec.persona:
        prepare.place_persona(site.repo, checkout, plan.spec.persona)


def _put_in_place(site: Site, plans: Sequence[Plan], _lock: Lock) -> None:
    for plan in plans:
        path = Path(plan.member.path)
        # rename(2) would silently replace an empty directory.
        if os.path.lexists(path):
            raise _exists(plan.spec.name, path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (site.making / plan.member.id).rename(path)
        if plan.record:
            write_record(site, plan.record)


def _conclude(site: Site, plans: Sequence[Plan], entry: Entry) -> None:
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
    """Somebody else is at it right now."""
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


def _exists(name: str, path: Path) -> WorktreeError:
    return WorktreeError(
        Code.WORKTREE_EXISTS,
        f"worktree {name} exists already: {path}",
        hint=f"choose another name, or bullpen worktree remove {name}",
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

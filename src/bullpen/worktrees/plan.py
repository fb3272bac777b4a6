"""Plans worktrees: checks every spec and resolves everything it names. Changes nothing.

`create` carries the plans out.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bullpen import clock
from bullpen.errors import BullpenError
from bullpen.model.names import check_name, subtree_name, subtree_name_in
from bullpen.worktrees import prepare
from bullpen.worktrees.branches import check_branch
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import current_branch, resolve, validate
from bullpen.worktrees.journal import NewWorktree
from bullpen.worktrees.listing import list_all
from bullpen.worktrees.pool import Ready
from bullpen.worktrees.port_blocks import MOST_PORTS
from bullpen.worktrees.records import Record, find_record, to_json
from bullpen.worktrees.site import Site, path_for


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
    # Runs the set-up in a sandbox. None: it is trusted as we are.
    setup_sandbox: prepare.SetupWrap | None = field(default=None, compare=False)
    made_for: str = ""  # noted in its record: whoever made it can tell it from another's
    lands_in: str = ""  # where its work goes; default: the base
    ports: int = 0  # so many of its own

    @property
    def birth_branch(self) -> str:
        return "" if self.detached else self.branch or self.name


@dataclass(frozen=True)
class WorktreePlan:
    """A spec that has been checked and resolved; everything that making it needs."""

    spec: Spec
    member: NewWorktree
    record: Record | None  # None for a pool entry
    head: str  # what HEAD will say
    lock_reason: str = ""  # stays locked with it; empty: unlocked when done
    ready: Ready | None = None  # a pooled checkout to use


def branch_name(spec: Spec) -> str:
    """The branch that the worktree is born on; empty when detached."""
    return spec.birth_branch


def plan_many(site: Site, specs: Sequence[Spec]) -> list[WorktreePlan]:
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
    # HEAD moves on; what it meant when the worktree was made is the branch.
    of_head = any(spec.base in {"", "HEAD"} for spec in specs)
    here = (current_branch(site.repo) or "") if of_head else ""
    return [
        _plan(site, spec, commits[spec.base], here if spec.base in {"", "HEAD"} else spec.base)
        for spec in specs
    ]


def _check_spec(site: Site, spec: Spec) -> None:
    try:
        # A subtree bears its branch's name, whatever letters that has.
        if not (spec.branch and spec.name in _subtree_names(site, spec.branch)):
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
    _check_ports(spec)
    if os.path.lexists(path_for(site, spec.name)):
        raise exists_already(spec.name, path_for(site, spec.name))


def _subtree_names(site: Site, branch: str) -> tuple[str, str]:
    return subtree_name(branch), subtree_name_in(str(site.repo.common_dir), branch)


def _check_ports(spec: Spec) -> None:
    if not 0 <= spec.ports <= MOST_PORTS:
        raise WorktreeError(
            Code.INVALID, f"{spec.name} cannot have {spec.ports} ports: at most {MOST_PORTS}"
        )


def _resolve_bases(site: Site, specs: Sequence[Spec]) -> dict[str, str]:
    """The commit of each base; also refuses branches that exist, in the same git call."""
    wanted = {spec.base: f"{spec.base or 'HEAD'}^{{commit}}" for spec in specs}
    refs = {f"refs/heads/{spec.birth_branch}": spec for spec in specs if spec.birth_branch}
    objects = resolve(site.repo, [*wanted.values(), *refs])
    for ref, spec in refs.items():
        if objects[ref] is not None:
            raise WorktreeError(
                Code.BRANCH_EXISTS,
                f"branch {spec.birth_branch} exists already",
                hint="choose another name" + _how_to_delete(site, spec),
            )
    commits = {}
    for base, revision in wanted.items():
        commit = objects[revision]
        if commit is None:
            raise _no_base(site, base)
        commits[base] = commit
    return commits


def _how_to_delete(site: Site, spec: Spec) -> str:
    """Of a branch that was made for this name. Others may be main."""
    record = find_record(site, spec.name)
    is_ours = record and record.is_of(site.repo) and record.branch == spec.birth_branch
    return f", or delete it: git branch -d {spec.birth_branch}" if is_ours else ""


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


def _plan(site: Site, spec: Spec, commit: str, base: str) -> WorktreePlan:
    # Where git itself makes the directory, it writes "-" for what a ref cannot hold.
    id = f"{spec.name.replace('~', '-')}.{secrets.token_hex(3)}"
    older = find_record(site, spec.name)
    branch = spec.birth_branch
    return WorktreePlan(
        spec=spec,
        member=NewWorktree(
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
            base=base,
            base_commit=commit,
            created_at=clock.to_text(clock.now()),
            role=spec.role,
            parent=spec.parent,
            depth=spec.depth,
            made_for=spec.made_for,
            lands_in=spec.lands_in,
        ),
        head=f"ref: refs/heads/{branch}" if branch else commit,
    )


def plan_again(site: Site, spec: Spec, record: Record, tip: str) -> WorktreePlan:
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
    fresh = _plan(site, spec, tip, record.base)
    return replace(
        fresh,
        member=replace(fresh.member, branch=""),
        record=replace(record, id=fresh.member.id, made_for=spec.made_for),
    )


def exists_already(name: str, path: Path) -> WorktreeError:
    """The refusal of a name that is taken."""
    return WorktreeError(
        Code.WORKTREE_EXISTS,
        f"worktree {name} exists already: {path}",
        hint=f"choose another name, or bullpen worktree remove {name}",
    )

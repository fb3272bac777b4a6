"""The steps of a landing on git: a chain of commits, its verification, the move of the target.

Synchronous; `queue` calls them in threads. Each can be repeated after a crash.
"""

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bullpen import proc
from bullpen.engines.programs import path_roots
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hub.landing.subjects import load_author_role
from bullpen.model.landing import Landing, is_removed, order_by_conflicts
from bullpen.model.role import Role, SandboxSettings
from bullpen.model.tree import is_elsewhere
from bullpen.sandboxes import get_sandbox
from bullpen.sandboxes.inside import StoreSandbox, bring_over_all
from bullpen.sandboxes.setup import SetupSandbox
from bullpen.worktrees import (
    Code,
    Site,
    Spec,
    WorktreeError,
    exists,
    find_record,
    list_all,
    open_repository,
)
from bullpen.worktrees.conflicts import find_conflicts
from bullpen.worktrees.git import resolve
from bullpen.worktrees.landing.build import Work, build
from bullpen.worktrees.landing.checked_out import HEADS, InTheWayError, list_changes
from bullpen.worktrees.landing.homes import find_homes, refuse_homes
from bullpen.worktrees.landing.landed import is_ancestor, remember_lines
from bullpen.worktrees.landing.move import Moved, move, recover_moves
from bullpen.worktrees.landing.scratch import Verified, clear, scratch_checkout, verify
from bullpen.worktrees.landing.signature import find_person
from bullpen.worktrees.plain import find_tip


@dataclass(frozen=True)
class Link:
    """One entry of a chain: what the target would be with it, and was before it."""

    landing: Landing
    before: str
    commit: str

    @property
    def is_there(self) -> bool:
        return self.commit == self.before


@dataclass(frozen=True)
class Chain:
    """Several entries, one on top of the other, on what the target is now."""

    base: str
    links: tuple[Link, ...] = ()
    back: dict[str, tuple[str, ...]] = field(default_factory=dict)  # id -> files that conflict
    refused: dict[str, BullpenError] = field(default_factory=dict)


def build_chain(site: Site, home: Home, landings: Sequence[Landing], target: str) -> Chain:
    """All that fit, in the order in which they conflict least. One that conflicts with another of
    them is left out: it is tried again on the target that the others made. One that would write to
    the home is refused."""
    repo, homes = site.repo, find_homes(site, home.root)
    base = find_tip(repo, f"{HEADS}{target}")
    if base is None:
        raise BullpenError(f"the branch {target} is gone", kind=Kind.NOT_FOUND)
    chain = Chain(base)
    top = base
    person = functools.cache(partial(find_person, repo))
    for landing in _ordered(site, landings):
        try:
            built = build(repo, _work(landing), top, target, person)
            if not built.conflicts:
                refuse_homes(repo, homes, top, built.commit)
        except WorktreeError as error:
            if error.code is not Code.INVALID:
                raise
            chain.refused[landing.id] = error
            continue
        if built.conflicts:
            if top == base:
                chain.back[landing.id] = built.conflicts
        else:
            chain = replace(chain, links=(*chain.links, Link(landing, top, built.commit)))
            top = built.commit
    return chain


def _work(landing: Landing) -> Work:
    return Work(landing.name, landing.branch, landing.tip, landing.strategy)


def _ordered(site: Site, landings: Sequence[Landing]) -> list[Landing]:
    if len(landings) < 3:  # of two, each conflicts with as many as the other
        return list(landings)
    commits = {str(number): landing.tip for number, landing in enumerate(landings)}
    pairs = list(itertools.combinations(commits, 2))
    conflicts = find_conflicts(site.repo, commits, pairs)
    clashes = {(int(one), int(other)) for (one, other), files in conflicts.items() if files}
    return [landings[number] for number in order_by_conflicts(len(landings), clashes)]


# ── verifying ──


@dataclass(frozen=True)
class Verifier:
    """Runs the command of entries on a commit, in a scratch checkout and a sandbox."""

    home: Home
    person: Path

    def run(
        self,
        site: Site,
        landings: Sequence[Landing],
        commit: str,
        log: Path,
        is_wanted: Callable[[], bool],
    ) -> Verified:
        """The command of these entries, which is the same for all. The checkout is prepared as
        those of their roles are. What runs there is their authors' work: it may do and see what
        they might, and no more. It is ended when it is no longer wanted."""
        why = get_sandbox().unavailable()
        if why:
            raise BullpenError(
                f"what lands is verified in a sandbox, and there can be none: {why}",
                hint="bullpen doctor",
                kind=Kind.UNAVAILABLE,
            )
        roles = self._roles(landings)
        wrap = self._sandbox(roles, has_network=all(landing.network for landing in landings))
        setups = dict.fromkeys(role.worktree.setup for role in roles if role.worktree.setup)
        spec = Spec(
            "",
            copy=tuple(dict.fromkeys(glob for role in roles for glob in role.worktree.copy_globs)),
            setup="\n".join(["set -e", *setups]) if setups else "",
            setup_sandbox=wrap,
        )
        first = landings[0]
        site = _with_files(site)
        try:
            with (
                proc.wanted_while(is_wanted),
                scratch_checkout(site, commit, spec) as checkout,
            ):
                return verify(site, checkout, first.verify, wrap, log, first.timeout_seconds)
        except WorktreeError as error:
            if error.code is not Code.SETUP_FAILED:
                raise
            return Verified("its set-up failed", str(error.details.get("output", "")), 0.0)

    def _roles(self, landings: Sequence[Landing]) -> list[Role]:
        """Those that differ in what a checkout gets from them."""
        roles: list[Role] = []
        for landing in landings:
            role = load_author_role(self.home, landing)
            if role is not None and _given(role) not in map(_given, roles):
                roles.append(role)
        return roles

    def _sandbox(self, roles: Sequence[Role], *, has_network: bool) -> SetupSandbox:
        sandbox = SetupSandbox(
            home=self.home.root,
            person=self.person,
            programs=tuple(path_roots(os.environ.get("PATH", ""), self.person, ())),
        )
        if len(roles) != 1:  # what one role may do is not another's
            return replace(sandbox, rules=SandboxSettings(allow_network=has_network))
        rules = roles[0].sandbox
        is_open = rules.allow_network and has_network  # as it was, and as it is now
        rules = rules.model_copy(update={"allow_network": is_open})
        return replace(sandbox, rules=rules, variables=roles[0].env)


def _given(role: Role) -> tuple[object, ...]:
    return role.sandbox, role.env, role.worktree


def _with_files(site: Site) -> Site:
    """From where untracked files are copied: the person's own checkout."""
    main = list_all(site)[0]
    if main.bare or site.repo.root is not None:
        return site
    return replace(site, repo=open_repository(main.path))


# ── moving ──


def move_target(site: Site, target: str, links: Sequence[Link], base: str) -> Moved:
    """Move the target to the end of the chain."""
    names = ", ".join(link.landing.name for link in links)
    lines = [
        line
        for link in links
        if link.landing.strategy != "merge" and not link.is_there
        for line in remember_lines(link.landing.branch, target, link.landing.tip, link.commit)
    ]
    message = f"bullpen: landed {names}"
    return move(site, target, base, links[-1].commit, message, lines, inside=StoreSandbox)


def find_blocked(site: Site, links: Sequence[Link], error: InTheWayError) -> set[str]:
    """Which entries change what stands in the way; all if that cannot be told."""
    files = set(error.files)
    blocked = {
        link.landing.id
        for link in links
        if files & {change.name for change in list_changes(site.repo, link.before, link.commit)}
    }
    return blocked or {link.landing.id for link in links}


# ── after a crash ──


def recover_queue(open_site: Callable[[], Site], landings: Sequence[Landing]) -> set[str]:
    """Finish or take back what a hub that was killed had begun in a repository; the ids of entries
    whose target has them."""
    site = open_site()
    clear(site)
    return find_landed(site, landings)


def find_landed(site: Site, landings: Sequence[Landing]) -> set[str]:
    """The ids of those that were about to be moved and whose target has them; what was begun of
    that is finished or taken back."""
    recover_moves(site.repo)
    if any(landing.status.state == "moving" for landing in landings):
        bring_over_all(site.repo)  # a target in a sandbox may have moved in there
    landed = set()
    for landing in landings:
        commit = getattr(landing.status, "commit", "")
        if landing.status.state == "moving" and commit:
            ref = f"{HEADS}{landing.target}"
            now = resolve(site.repo, [ref, f"{commit}^{{commit}}"])
            if all(now.values()) and is_ancestor(site.repo, commit, now[ref] or ""):
                landed.add(landing.id)
    return landed


def find_removed(site: Site, landings: Sequence[Landing]) -> set[str]:
    """The ids of those whose worktree is gone, or is another one of that name."""
    removed = set()
    for landing in landings:
        if is_elsewhere(landing.name):
            continue  # its worktree is on another machine
        there = replace(site, base=Path(landing.base_dir))
        record = find_record(there, landing.name)
        birth = record.id if record and record.is_of(site.repo) else ""
        if is_removed(landing, birth, has_worktree=exists(there, landing.name)):
            removed.add(landing.id)
    return removed


def find_tips(site: Site, branches: Sequence[str]) -> dict[str, str]:
    """The commits of these branches, as far as they are there."""
    refs = {f"{HEADS}{branch}": branch for branch in branches}
    return {refs[ref]: oid for ref, oid in resolve(site.repo, list(refs)).items() if oid}

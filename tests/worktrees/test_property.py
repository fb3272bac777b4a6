"""Random operations, crashes and interference against a model of what must hold.

The model knows three things: which commits and which uncommitted files are somebody's
work, and which of the failures an operation may have. After every step nothing that is
work may be lost unless a hand outside destroyed it, and git finds its house in order.
"""

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bullpen import worktrees
from bullpen.worktrees import Code, Spec, WorktreeError
from tests.worktrees.killed import died_at_effect
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

NAMES = ("amy", "bob", "main.fix")
names = st.sampled_from(NAMES)
numbers = st.integers(0, len(NAMES) - 1)


class Bench(RuleBasedStateMachine):
    """One repository, one base, three names that everybody fights over."""

    @initialize(pool=st.integers(0, 1))
    def start(self, pool: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="bullpen-property-"))
        self.repo = make_repo(self.root / "repo")
        self.site = worktrees.open_site(self.repo, self.root / "base", pool=pool)
        self.counter = 0
        self.commits: set[str] = set()  # work: must stay reachable
        self.files: dict[str, dict[str, str]] = {}  # uncommitted work by worktree
        self.copies: list[dict[str, str]] = []  # what forced removals must have saved
        worktrees.fill_pool(self.site)
        worktrees.create_many(self.site, [Spec("amy"), Spec("bob")])
        self.commit(0)
        self.write(1)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.git_is_content()
            shutil.rmtree(self.root, ignore_errors=True)  # its trash is being emptied

    def existing(self, number: int) -> str:
        """One of the worktrees that are there; any name when none is."""
        there = [name for name in NAMES if worktrees.exists(self.site, name)]
        return there[number % len(there)] if there else NAMES[number]

    # ── the library ──

    def attempt(self, allowed: set[Code], call: partial[object]) -> bool:
        try:
            call()
        except WorktreeError as error:
            assert error.code in allowed, error
            return False
        return True

    def intact(self, name: str) -> bool:
        try:
            worktrees.head(self.site, name)
        except WorktreeError:
            return False
        return True

    @rule(chosen=st.sets(names, min_size=1, max_size=3))
    def create(self, chosen: set[str]) -> None:
        before = {name for name in NAMES if worktrees.exists(self.site, name)}
        call = partial(worktrees.create_many, self.site, [Spec(name) for name in sorted(chosen)])
        allowed = {Code.WORKTREE_EXISTS, Code.BRANCH_EXISTS, Code.LOCKED}
        if self.attempt(allowed, call):
            assert all(self.intact(name) for name in chosen)
        else:
            after = {name for name in NAMES if worktrees.exists(self.site, name)}
            assert after == before, "a refused set leaves nothing"

    @rule(name=names)
    def ensure(self, name: str) -> None:
        allowed = {Code.WORKTREE_CORRUPT, Code.BRANCH_EXISTS, Code.LOCKED, Code.WORKTREE_EXISTS}
        if self.attempt(allowed, partial(worktrees.ensure, self.site, Spec(name))):
            assert self.intact(name)

    @rule(number=numbers, force=st.booleans())
    def remove(self, number: int, force: bool) -> None:
        name = self.existing(number)
        dirty = dict(self.files.get(name, {})) if self.intact(name) else {}
        allowed = set() if force else {Code.DIRTY, Code.LOCKED}
        removed = self.attempt(allowed, partial(worktrees.remove, self.site, name, force=force))
        if removed:
            assert force or not dirty, "uncommitted work needs force"
            assert not worktrees.exists(self.site, name)
            if dirty:
                self.copies.append(dirty)
            self.files.pop(name, None)

    @rule(name=names)
    def restore(self, name: str) -> None:
        allowed = {Code.WORKTREE_NOT_FOUND, Code.WORKTREE_EXISTS, Code.BRANCH_EXISTS}
        allowed |= {Code.WORKTREE_CORRUPT, Code.LOCKED}
        exists = worktrees.exists(self.site, name)
        if self.attempt(allowed, partial(worktrees.restore, self.site, name)) and not exists:
            path = self.site.base / name
            self.files[name] = {
                file: (path / file).read_text()
                for file in worktrees.uncommitted_files(self.site, name)
                if (path / file).is_file()
            }

    @rule(number=numbers, protect=st.booleans())
    def lock_or_unlock(self, number: int, protect: bool) -> None:
        name = self.existing(number)
        allowed = {Code.LOCKED, Code.WORKTREE_NOT_FOUND, Code.WORKTREE_CORRUPT}
        change = worktrees.lock if protect else worktrees.unlock
        self.attempt(allowed, partial(change, self.site, name))

    @rule()
    def clean_up(self) -> None:
        worktrees.prune(self.site)
        worktrees.gc(self.site)
        worktrees.fill_pool(self.site)

    # ── crashes ──

    @rule(name=names, step=st.integers(1, 160))
    def create_and_die(self, name: str, step: int) -> None:
        if not worktrees.exists(self.site, name):
            branches = git(self.repo, "branch", "--format=%(refname:short)").split("\n")
            self.die(step, partial(worktrees.create, self.site, Spec(name)))
            if not worktrees.exists(self.site, name) and name not in branches:
                after = git(self.repo, "branch", "--format=%(refname:short)").split("\n")
                assert name not in after, "half of it was left"

    @rule(number=numbers, step=st.integers(1, 120), force=st.booleans())
    def remove_and_die(self, number: int, step: int, force: bool) -> None:
        name = self.existing(number)
        dirty = dict(self.files.get(name, {})) if self.intact(name) else {}
        self.die(step, partial(worktrees.remove, self.site, name, force=force))
        if not worktrees.exists(self.site, name):
            assert force or not dirty
            if dirty:
                self.copies.append(dirty)
            self.files.pop(name, None)

    def die(self, step: int, call: partial[object]) -> None:
        def quietly() -> None:
            try:
                call()
            except WorktreeError:
                os._exit(0)

        died_at_effect(step, quietly)
        worktrees.gc(self.site)
        assert not list((self.site.repo.own_dir / "journal").iterdir()), "an intent is left"
        assert not list(self.site.making.iterdir()), "something half-made is left"

    # ── agents at work ──

    @rule(number=numbers)
    def write(self, number: int) -> None:
        name = self.existing(number)
        if self.intact(name):
            self.counter += 1
            file, text = f"work{self.counter}.txt", f"work {self.counter}\n"
            (self.site.base / name / file).write_text(text)
            self.files.setdefault(name, {})[file] = text

    @rule(number=numbers)
    def commit(self, number: int) -> None:
        name = self.existing(number)
        if self.intact(name):
            self.write(number)
            path = self.site.base / name
            for file, text in self.files.pop(name).items():
                self.commits.add(commit(path, file, text))

    @rule(name=names, squash=st.booleans())
    def merge(self, name: str, squash: bool) -> None:
        if name in git(self.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/"):
            done = git(self.repo, "merge", "-q", *(["--squash"] * squash), name, check=False)
            if squash and git(self.repo, "status", "--porcelain") != "":
                git(self.repo, "commit", "-qm", f"Squash {name}{done}")

    # ── hands outside ──

    @rule(number=numbers)
    def delete_files(self, number: int) -> None:
        name = self.existing(number)
        path = self.site.base / name
        if path.is_dir():
            shutil.rmtree(path)
            self.files.pop(name, None)

    @rule(number=numbers)
    def delete_git_file(self, number: int) -> None:
        name = self.existing(number)
        (self.site.base / name / ".git").unlink(missing_ok=True)

    @rule(name=names)
    def delete_branch(self, name: str) -> None:
        git(self.repo, "branch", "-D", name, check=False)
        self.forget_unreachable()

    @rule(name=names)
    def add_by_hand(self, name: str) -> None:
        self.site.base.mkdir(exist_ok=True)
        git(self.repo, "worktree", "add", "-q", "--detach", str(self.site.base / name), check=False)

    @rule(number=numbers)
    def remove_by_hand(self, number: int) -> None:
        name = self.existing(number)
        path = self.site.base / name
        git(self.repo, "worktree", "remove", "--force", str(path), check=False)
        if not path.exists():
            self.files.pop(name, None)
        self.forget_unreachable()

    @rule()
    def prune_by_hand(self) -> None:
        git(self.repo, "worktree", "prune")
        self.forget_unreachable()

    def forget_unreachable(self) -> None:
        self.commits &= self.reachable()

    # ── what must hold ──

    def reachable(self) -> set[str]:
        heads = [entry.head for entry in worktrees.list_all(self.site) if entry.head.strip("0")]
        return set(git(self.repo, "rev-list", "--all", *heads).split("\n"))

    @invariant()
    def no_commit_is_lost(self) -> None:
        if hasattr(self, "repo"):
            assert self.commits <= self.reachable(), self.commits - self.reachable()

    @invariant()
    def no_file_is_lost(self) -> None:
        if not hasattr(self, "repo"):
            return
        for name, files in self.files.items():
            for file, text in files.items():
                assert (self.site.base / name / file).read_text() == text
        kept = [copy.commit for copy in worktrees.list_safety_copies(self.site.repo)]
        for files in self.copies:
            assert any(
                all(
                    git(self.repo, "show", f"{copy}:{file}", check=False) == text.rstrip("\n")
                    for file, text in files.items()
                )
                for copy in kept
            ), files

    def git_is_content(self) -> None:
        assert git(self.repo, "fsck", "--no-progress", "--no-dangling") == ""
        git(self.repo, "worktree", "list", "--porcelain")
        git(self.repo, "status")


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.storm)])
def test_w4_w7_no_sequence_of_events_loses_work(examples: int) -> None:
    Bench.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
    )
    Bench.TestCase().runTest()

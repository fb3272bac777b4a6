"""Branch schemes, and what git takes as a branch. Pure, except where git itself is asked."""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.branches import is_of_session, is_valid_branch
from tests.worktrees.repos import commit, git, refs

Failing = Callable[..., worktrees.WorktreeError]


@pytest.mark.parametrize(
    ("spec", "branch"),
    [
        (Spec("amy"), "amy"),
        (Spec("amy", branch="feature/login"), "feature/login"),
        (Spec("amy", detached=True), ""),
        (Spec("amy", branch="kept-for-restore", detached=True), ""),
        (Spec("main.a", branch="main.a", parent="main", depth=1), "main.a"),
    ],
)
def test_w3_birth_branch(spec: Spec, branch: str) -> None:
    assert worktrees.branch_name(spec) == branch


@pytest.mark.parametrize(
    ("role", "session", "prefix", "branch"),
    [
        ("reviewer", "1700000000", "swarm", "swarm/reviewer-1700000000"),
        ("reviewer", "test-session-123", "swarm", "swarm/reviewer-test-session-123"),
        ("coder", "x", "team/blue", "team/blue/coder-x"),
    ],
)
def test_w3_swarm_branch(role: str, session: str, prefix: str, branch: str) -> None:
    assert worktrees.swarm_branch(role, session, prefix) == branch


@pytest.mark.parametrize(
    ("role", "session", "prefix"),
    [("reviewer", "", "swarm"), ("re viewer", "1", "swarm"), ("x", "1", "swarm.lock")],
)
def test_w3_swarm_branch_refused(failing: Failing, role: str, session: str, prefix: str) -> None:
    failing("INVALID", worktrees.swarm_branch, role, session, prefix)


@pytest.mark.parametrize(
    ("branch", "is_its"),
    [
        ("swarm/coder-17", True),
        ("team/blue/coder-17", True),
        ("swarm/coder-17-amy", True),
        ("swarm/coder-17-bob", False),
        ("swarm/coder-117", False),
        ("swarm/coder-1-17", False),
        ("coder-17", False),
        ("swarm/tester-17", False),
        ("", False),
    ],
)
def test_w3_the_session_of_a_branch(branch: str, is_its: bool) -> None:
    assert is_of_session(branch, "coder", "amy", "17") is is_its


def test_w3_swarm_branches_of_one_role_are_told_apart_by_name(failing: Failing) -> None:
    roles = {"ann": "coder", "ben": "coder", "cy": "reviewer"}
    branches = worktrees.swarm_branches(roles, "1700000000", "team")
    assert branches == {
        "ann": "team/coder-1700000000-ann",
        "ben": "team/coder-1700000000-ben",
        "cy": "team/reviewer-1700000000",
    }
    assert worktrees.swarm_created_at(branches["ann"], "coder", "team") == 1700000000
    failing("INVALID", worktrees.swarm_branches, roles, "", "team")


@pytest.mark.parametrize(
    ("branch", "role", "prefix", "digits"),
    [
        ("swarm/x-123abc", "x", "swarm", 123),
        ("swarm/x-1700000000", "x", "swarm", 1700000000),
        ("swarm/reviewer-test-session-123", "reviewer", "swarm", 0),
        ("swarm/x-", "x", "swarm", 0),
        ("swarm/x-y-5", "x", "swarm", 0),
        ("swarm/x-y-5", "x-y", "swarm", 5),
        ("swarm/xy-5", "x", "swarm", 0),
        ("other/x-5", "x", "swarm", 0),
        ("other/x-5", "x", "other", 5),
        ("x-5", "x", "swarm", 0),
        ("", "x", "swarm", 0),
        ("swarm/x-٣", "x", "swarm", 0),
    ],
)
def test_w3_created_at_is_the_digits_after_the_role(
    branch: str, role: str, prefix: str, digits: int
) -> None:
    assert worktrees.swarm_created_at(branch, role, prefix) == digits


def test_w3_subtree_branch(failing: Failing) -> None:
    assert worktrees.subtree_branch("main", "feature-a") == "main.feature-a"
    assert worktrees.subtree_branch("swarm/x-1", "a") == "swarm/x-1.a"
    for slug in ("", ".a", "a b", "a..b", "lock"):
        failing("INVALID", worktrees.subtree_branch, "main", slug)


def test_w3_base_is_the_named_ref_else_the_current_branch_else_head(site: Site, repo: Path) -> None:
    old = git(repo, "rev-parse", "HEAD")
    git(repo, "branch", "old")
    new = commit(repo, "new.txt")
    worktrees.create(site, Spec("amy"))
    worktrees.create(site, Spec("bob", base="old"))
    git(repo, "checkout", "-q", "--detach", "old")
    worktrees.create(site, Spec("cat"))
    found = {name: worktrees.info(site, name) for name in ("amy", "bob", "cat")}
    assert {name: info.base for name, info in found.items()} == {
        "amy": "main",
        "bob": "old",
        "cat": "",
    }
    assert [found[name].head for name in ("amy", "bob", "cat")] == [new, old, old]


def test_w3_base_may_be_a_tag_a_remote_branch_or_a_commit(site: Site, repo: Path) -> None:
    old = git(repo, "rev-parse", "HEAD")
    git(repo, "tag", "-a", "-m", "One", "v1")
    git(repo, "update-ref", "refs/remotes/origin/topic", old)
    commit(repo, "new.txt")
    for name, base in (("a", "v1"), ("b", "origin/topic"), ("c", old[:10]), ("d", "main~1")):
        worktrees.create(site, Spec(name, base=base))
        assert worktrees.head(site, name) == old
        assert worktrees.info(site, name).branch == name


@pytest.mark.parametrize(
    "base", ["nothing", "file0.txt", "main:file0.txt", "-x", "--all", "a b", "\n", "", "^main"]
)
def test_w3_base_that_is_no_commit(site: Site, failing: Failing, base: str) -> None:
    if base:
        failing("REF_NOT_FOUND", worktrees.create, site, Spec("amy", base=base))
        assert refs(site) == {"main"}
    else:
        worktrees.create(site, Spec("amy", base=base))


def test_w3_missing_base_that_the_remote_has_is_hinted_at(
    site: Site, repo: Path, failing: Failing
) -> None:
    git(repo, "update-ref", "refs/remotes/origin/topic", "HEAD")
    error = failing("REF_NOT_FOUND", worktrees.create, site, Spec("amy", base="topic"))
    assert "origin/topic" in error.hint


def test_w3_swarm_worktree_tells_when_its_session_began(site: Site) -> None:
    for name, session, moment in (
        ("seconds", "1700000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("millis", "1700000000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
    ):
        branch = worktrees.swarm_branch("coder", session)
        worktrees.create(site, Spec(name, branch=branch, role="coder"))
        assert worktrees.info(site, name).created_at == moment


# ── git's own opinion ────────────────────────────────────────────────────────

ODD = st.sampled_from(
    [
        *"aB1-./@{}~^:?*[]\\ \t\x7f\x01é\u2028\u00a0!$'\"\n#%+,_\udcff",
        *("..", "//", "@{", ".lock", "lock", "HEAD", "refs/heads/", "x" * 60),
    ]
)


def git_allows(branch: str) -> bool:
    done = subprocess.run(
        ["git", "check-ref-format", "--branch", os.fsencode(branch)],
        capture_output=True,
        check=False,
    )
    # With a repository at hand @{-1} would be expanded; what it prints must be what we gave.
    return done.returncode == 0 and done.stdout == os.fsencode(branch) + b"\n"


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(ODD, max_size=6).map("".join) | st.text(max_size=8).filter(lambda t: "\0" not in t))
@example("@")
@example("HEAD")
@example("-")
@example("a/@")
@example("a.lock/b")
@example("a/.b")
@example("a@{b")
def test_w3_branch_rule_is_gits_rule(branch: str) -> None:
    try:
        os.fsencode(branch)
    except UnicodeEncodeError:
        return  # no command line can hold it
    # Git takes @ too, but nobody could name that branch again: @ means HEAD.
    assert is_valid_branch(branch) == (git_allows(branch) and branch != "@"), branch


@pytest.mark.parametrize(
    ("branch", "valid"),
    [
        ("main", True),
        ("a/b.c", True),
        ("a@b", True),
        ("ünï", True),
        ("refs/heads/x", True),
        ("", False),
        ("@", False),
        ("HEAD", False),
        ("-x", False),
        ("/x", False),
        ("x/", False),
        ("x//y", False),
        (".x", False),
        ("x/.y", False),
        ("x.", False),
        ("x..y", False),
        ("x.lock", False),
        ("x.lock/y", False),
        ("x y", False),
        ("x\0y", False),
        ("x\x7f", False),
        ("x@{y", False),
        *((f"x{char}y", False) for char in "~^:?*[\\\t\n"),
    ],
)
def test_w3_branches_that_git_takes(branch: str, valid: bool) -> None:
    assert is_valid_branch(branch) is valid


def test_w3_the_current_branch_is_what_git_says(repo: Path, tmp_path: Path) -> None:
    def current() -> str | None:
        return worktrees.current_branch(worktrees.open_repository(repo))

    assert current() == "main"
    git(repo, "pack-refs", "--all")
    assert current() == "main"
    git(repo, "switch", "-qc", "feature/x")
    assert current() == "feature/x"
    git(repo, "symbolic-ref", "refs/heads/other", "refs/heads/main")
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    asked = git(repo, "symbolic-ref", "HEAD").removeprefix("refs/heads/")
    assert current() == asked
    git(repo, "switch", "-q", "--orphan", "empty")
    assert current() == "empty"
    git(repo, "switch", "-q", "--detach", "main")
    assert current() is None

"""What there is: git's own list and our records beside it."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen import clock, worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.listing import Listed, parse
from tests.worktrees.repos import commit, git, make_repo

Failing = Callable[..., worktrees.WorktreeError]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("worktree /r\0bare\0\0", [Listed(Path("/r"), bare=True)]),
        (
            "worktree /r\0HEAD 12\0branch refs/heads/a/b\0\0"
            "worktree /r w/new\nline\0HEAD 34\0detached\0locked because of\nthis\0\0"
            "worktree /x\0HEAD 00\0branch refs/heads/y\0locked\0prunable gone\0\0",
            [
                Listed(Path("/r"), "12", "a/b"),
                Listed(Path("/r w/new\nline"), "34", locked="because of\nthis"),
                Listed(Path("/x"), "00", "y", locked="", prunable="gone"),
            ],
        ),
        ("worktree /r\0HEAD 12\0detached\0something new\0\0", [Listed(Path("/r"), "12")]),
    ],
)
def test_w8_parse(text: str, entries: list[Listed]) -> None:
    assert parse(text) == entries


def test_w8_lists_every_kind(site: Site, repo: Path, tmp_path: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    odd = tmp_path / "sp ace\nnew\n\nline"
    git(repo, "worktree", "add", "-q", "-b", "feature/x", str(odd))
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "detached"))
    git(repo, "worktree", "lock", "--reason", "two\nlines", str(odd))
    git(repo, "worktree", "add", "-q", "-b", "gone", str(tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    found = {entry.path.name: entry for entry in worktrees.list_all(site)}
    assert found["repo"] == Listed(repo, head, "main")
    assert found[odd.name].branch == "feature/x" and found[odd.name].locked == "two\nlines"
    assert found["detached"] == Listed(tmp_path / "detached", head, "")
    assert found["gone"].prunable and found["gone"].branch == "gone"


def test_w8_bare(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    site = worktrees.open_site(tmp_path / "bare.git", tmp_path / "base")
    worktrees.create(site, Spec("amy"))
    main, amy = worktrees.list_all(site)
    assert (main.bare, main.head, main.branch) == (True, "", "")
    assert (amy.bare, amy.branch) == (False, "amy")


def test_w8_none_is_an_empty_list(site: Site) -> None:
    assert worktrees.list_managed(site) == []
    assert len(worktrees.list_all(site)) == 1


@pytest.mark.parametrize("base", ["sp ace", "new\nline", "quote\"'", b"caf\xe9", "a\n\nb", "-x"])
def test_w8_managed_are_those_under_the_base(repo: Path, tmp_path: Path, base: str | bytes) -> None:
    site = worktrees.open_site(repo, tmp_path / os.fsdecode(base))
    worktrees.create_many(site, [Spec("amy"), Spec("bob", detached=True)])
    git(repo, "worktree", "add", "-q", "-b", "x", str(tmp_path / "elsewhere"))
    git(site.base / "amy", "worktree", "add", "-q", "-b", "inner", "inner")
    assert [entry.name for entry in worktrees.list_managed(site)] == ["amy", "bob"]
    assert [entry.branch for entry in worktrees.list_managed(site)] == ["amy", ""]
    assert worktrees.info(site, "amy").path == site.base / "amy"


def test_w8_seen_from_inside_a_worktree(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    inside = worktrees.open_site(path, site.base)
    assert worktrees.list_all(inside) == worktrees.list_all(site)
    assert worktrees.current_branch(inside.repo) == "amy"
    worktrees.create(inside, Spec("child"))
    assert worktrees.info(site, "child").base == "amy"


def test_w8_pool_entries_are_not_managed(repo: Path, tmp_path: Path) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", pool=2)
    assert worktrees.fill_pool(site) == 2
    assert len(worktrees.list_all(site)) == 3
    assert worktrees.list_managed(site) == []


@pytest.mark.parametrize("what", ["plain directory", "missing", "file"])
def test_w8_outside_a_repository(tmp_path: Path, failing: Failing, what: str) -> None:
    where = tmp_path / "where"
    if what == "plain directory":
        where.mkdir()
    elif what == "file":
        where.write_text("x")
    failing("NOT_A_REPO", worktrees.open_site, where, tmp_path / "base")
    assert not worktrees.is_repository(where)


def test_w8_repository_that_is_gone_since(site: Site, repo: Path, failing: Failing) -> None:
    shutil.rmtree(repo)
    for function in (worktrees.list_all, worktrees.list_managed):
        with pytest.raises(worktrees.WorktreeError):
            function(site)


def test_w8_info(site: Site, repo: Path) -> None:
    spec = Spec("amy", branch="task/1", role="coder", parent="boss", depth=1)
    path = worktrees.create(site, spec)
    commit(path, "one.txt")
    head = commit(path, "two.txt")
    for name in ("x", "y", "z"):
        commit(repo, name)
    (path / "file0.txt").write_text("changed\n")
    (path / "new file").write_text("x")
    worktrees.lock(site, "amy", "busy")
    info = worktrees.info(site, "amy")
    assert (info.name, info.path, info.branch, info.head) == ("amy", path, "task/1", head)
    assert (info.base, info.role, info.parent, info.depth) == ("main", "coder", "boss", 1)
    assert (info.locked, info.ahead, info.behind) == ("busy", 2, 3)
    assert info.dirty and info.changes == ("file0.txt", "new file")
    assert info.created_at and clock.now() - info.created_at < timedelta(minutes=5)


def test_w8_info_of_a_clean_detached_one(site: Site, repo: Path) -> None:
    worktrees.create(site, Spec("amy", detached=True))
    info = worktrees.info(site, "amy")
    assert (info.branch, info.locked, info.dirty, info.changes) == ("", None, False, ())
    assert (info.head, info.ahead) == (git(repo, "rev-parse", "HEAD"), 0)


def test_w8_info_when_the_base_is_gone(site: Site, repo: Path) -> None:
    git(repo, "branch", "topic")
    path = worktrees.create(site, Spec("amy", base="topic"))
    commit(path, "one.txt")
    git(repo, "branch", "-D", "topic")
    info = worktrees.info(site, "amy")
    assert (info.base, info.ahead, info.behind) == ("topic", 1, 0)


def test_w8_info_of_a_branch_without_a_commit(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--orphan", "fresh")
    info = worktrees.info(site, "amy")
    assert (info.branch, info.head, info.ahead, info.behind) == ("fresh", "", 0, 0)
    assert len(info.changes) == 3
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert (path / "file0.txt").exists()


def test_w8_info_of_one_made_by_hand(site: Site, repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "mine", str(site.base / "mine"))
    info = worktrees.info(site, "mine")
    assert (info.branch, info.role, info.created_at) == ("mine", "", None)
    worktrees.remove(site, "mine")
    assert "mine" in git(repo, "branch", "--list", "mine")


def test_w8_base_named_in_bytes_that_are_no_text(site: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", os.fsdecode(b"caf\xe9"))
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    info = worktrees.info(site, "amy")
    assert (info.base, info.ahead) == (os.fsdecode(b"caf\xe9"), 1)
    assert worktrees.remove(site, "amy").branch_left == "amy"


def test_w8_info_of_what_is_not_there(site: Site, failing: Failing) -> None:
    worktrees.create(site, Spec("bob"))
    assert "bob" in failing("WORKTREE_NOT_FOUND", worktrees.info, site, "amy").hint
    failing("INVALID", worktrees.info, site, "../repo")
    shutil.rmtree(site.base / "bob")
    assert "remove bob" in failing("WORKTREE_CORRUPT", worktrees.info, site, "bob").hint


def test_w8_damaged_record_is_told(site: Site, failing: Failing) -> None:
    worktrees.create(site, Spec("amy"))
    for text in ("not json", "[]", "{}", '{"name": "amy"}'):
        (site.records / "amy.json").write_text(text)
        error = failing("WORKTREE_CORRUPT", worktrees.info, site, "amy")
        assert "amy.json" in error.message


# ── W2 ───────────────────────────────────────────────────────────────────────


def test_w2_what_a_repository_is(repo: Path, tmp_path: Path) -> None:
    (repo / "sub").mkdir()
    found = worktrees.open_repository(repo / "sub")
    assert (found.root, found.common_dir) == (repo, repo / ".git")
    assert worktrees.is_repository(repo) and not worktrees.is_repository(tmp_path)
    assert worktrees.has_commits(found)
    assert worktrees.current_branch(found) == "main"
    assert worktrees.branch_exists(found, "main") and not worktrees.branch_exists(found, "x")
    worktrees.validate(found)
    git(repo, "checkout", "-q", "--detach")
    assert worktrees.current_branch(found) is None
    git(repo, "branch", "-D", "main")
    assert worktrees.has_commits(found)  # the head's


def test_w2_paths(site: Site, tmp_path: Path, failing: Failing) -> None:
    assert worktrees.path_for(site, "amy") == site.base / "amy"
    failing("INVALID", worktrees.path_for, site, "../amy")
    assert not worktrees.exists(site, "amy")
    worktrees.create(site, Spec("amy"))
    assert worktrees.exists(site, "amy")
    roles = tmp_path / "roles"
    assert worktrees.persona_path(roles, "coder") == roles / "coder" / "CLAUDE.md"
    assert not worktrees.persona_exists(roles, "coder")
    (roles / "coder").mkdir(parents=True)
    (roles / "coder" / "CLAUDE.md").write_text("x")
    assert worktrees.persona_exists(roles, "coder")


def test_w2_old_git_is_refused_with_both_versions(
    repo: Path, tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bullpen.worktrees.git import require_git

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho git version 2.30.1\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    require_git.cache_clear()
    try:
        error = failing("GIT_FAILED", worktrees.open_site, repo, tmp_path / "base")
    finally:
        require_git.cache_clear()
    assert "2.30.1" in error.message and "2.38" in error.message


def test_w2_no_git_at_all_is_one_of_our_errors(
    repo: Path, tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bullpen.worktrees.git import require_git

    site = worktrees.open_site(repo, tmp_path / "base")
    worktrees.create(site, Spec("amy"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    require_git.cache_clear()
    try:
        failing("GIT_FAILED", worktrees.open_site, repo, tmp_path / "base")
        for function in (worktrees.head, worktrees.changes, worktrees.diff_stat, worktrees.info):
            failing("GIT_FAILED", function, site, "amy")
        failing("GIT_FAILED", worktrees.remove, site, "amy")
        failing("GIT_FAILED", worktrees.has_commits, site.repo)
    finally:
        require_git.cache_clear()
    assert (site.base / "amy" / "file0.txt").exists()


def test_w2_two_repositories_are_never_confused(tmp_path: Path) -> None:
    outer = make_repo(tmp_path / "outer")
    inner = make_repo(outer / "inner")
    assert worktrees.open_repository(inner).root == inner
    assert worktrees.open_repository(outer).root == outer

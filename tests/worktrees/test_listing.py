"""What there is: git's own list and our records beside it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen import clock, worktrees
from bullpen.worktrees import Site, Spec, WorktreeError
from bullpen.worktrees.git import Repository
from bullpen.worktrees.listing import Listed, _read_all, parse
from bullpen.worktrees.plain import find_tip
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


def test_w8_one_that_goes_on_from_another_is_measured_against_where_both_land(
    site: Site, repo: Path
) -> None:
    commit(worktrees.create(site, Spec("ann")), "one.txt")
    commit(worktrees.create(site, Spec("ben", base="ann", lands_in="main")), "two.txt")
    commit(repo, "later.txt")
    info = worktrees.info(site, "ben")
    assert (info.base, info.ahead, info.behind) == ("main", 2, 1)
    assert ("ben", "main") in worktrees.pairs_of(site)
    assert worktrees.diff_stat(site, "ben").commits.count == 1  # its own
    git(repo, "branch", "-m", "main", "trunk")
    info = worktrees.info(site, "ben")
    assert (info.ahead, info.behind) == (1, 0)  # of where it began


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
        for function in (
            worktrees.head,
            worktrees.uncommitted_files,
            worktrees.diff_stat,
            worktrees.info,
        ):
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


def test_w1_a_repository_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """What git says of a git directory is remembered while that is the same."""
    repo = make_repo(tmp_path / "repo")
    found = worktrees.open_repository(repo / ".git")
    assert worktrees.open_repository(repo / ".git") == found
    shutil.rmtree(repo / ".git")
    with pytest.raises(WorktreeError, match="no such directory"):
        worktrees.open_repository(repo / ".git")
    (repo / ".git").mkdir()
    (repo / ".git" / "config").write_text("")
    with pytest.raises(WorktreeError, match="not a git repository"):
        worktrees.open_repository(repo / ".git")
    shutil.rmtree(repo / ".git")
    # In its place lies another's, which its configuration leads elsewhere.
    git(tmp_path, "init", "-q", "--separate-git-dir", str(repo / ".git"), str(tmp_path / "other"))
    assert worktrees.open_repository(repo / ".git").common_dir == repo / ".git"
    git(repo / ".git", "config", "core.worktree", str(repo))
    assert worktrees.open_repository(repo).root == repo


@pytest.mark.parametrize("is_packed", [False, True])
def test_n3_the_tip_of_a_branch_is_found_wherever_git_keeps_it(
    tmp_path: Path, is_packed: bool
) -> None:
    repo = make_repo(tmp_path / "repo")
    git(repo, "branch", "a/b")
    git(repo, "symbolic-ref", "refs/heads/link", "refs/heads/a/b")
    (repo / ".git" / "stray").write_text(git(repo, "rev-parse", "main") + "\n")
    if is_packed:
        git(repo, "pack-refs", "--all")
    site_repo, head = worktrees.open_repository(repo), git(repo, "rev-parse", "main")
    there = ("main", "a/b", "link")
    assert [find_tip(site_repo, f"refs/heads/{name}") for name in there] == [head] * 3
    for name in ("a", "none", "../../stray", "main/x", ""):
        assert find_tip(site_repo, f"refs/heads/{name}") is None


def test_w8_the_list_from_files_is_the_one_that_git_gives(site: Site, repo: Path) -> None:
    names = ("b", "a-b", "a", "detached", "gone", "other")
    worktrees.create_many(site, [Spec(name, detached=name == "detached") for name in names])
    git(repo, "worktree", "lock", "--reason", "two\nlines ", str(site.base / "b"))
    git(repo, "worktree", "lock", str(site.base / "a"))
    git(site.base / "other", "switch", "-qc", "feature/x")
    commit(site.base / "other", "new")
    shutil.rmtree(site.base / "gone")

    every = [replace(each, prunable=None) for each in worktrees.list_all(site)]
    by_git = [each for each in every if each.path.parent == site.base]
    assert _read_all(site) == by_git == worktrees.list_managed(site)
    # What it has no file for, git is asked.
    git(repo, "pack-refs", "--all")
    assert _read_all(site) is None
    again = worktrees.list_managed(site)
    assert [replace(each, prunable=None) for each in again] == by_git


def test_w8_all_are_described_by_one_git_each_and_one_for_their_bases(
    site: Site, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("amy", "bob", "cat")
    worktrees.create_many(site, [Spec(name) for name in names])
    commit(site.base / "bob", "new")
    (site.base / "cat" / "new").write_text("x")
    worktrees.describe_all(site)  # what is known of the files is kept
    calls = tmp_path / "calls"
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    again = worktrees.open_site(repo, site.base)
    found = worktrees.describe_all(again)
    verbs = ("status", "cat-file", "rev-list", "rev-parse", "worktree", "diff-index")
    counts = {verb: calls.read_text().count(f" {verb} ") for verb in verbs}
    # Only bob is not where its base is.
    assert {**counts, "diff-index": 0} == dict.fromkeys(verbs, 0) | {
        "status": 3,
        "cat-file": 1,
        "rev-list": 1,
    }
    infos = [info for _, info in found if isinstance(info, worktrees.Info)]
    assert [(info.name, info.ahead, info.dirty) for info in infos] == [
        ("amy", 0, False),
        ("bob", 1, False),
        ("cat", 0, True),
    ]
    assert infos == [worktrees.info(site, name) for name in names]


def test_w8_a_repository_is_asked_for_again_when_it_has_changed(repo: Path, tmp_path: Path) -> None:
    found = worktrees.open_repository(repo)
    assert (
        worktrees.open_repository(repo) == found == Repository(repo / ".git", repo / ".git", repo)
    )
    git(repo, "config", "core.worktree", str(tmp_path))
    assert worktrees.open_repository(repo).root == tmp_path
    git(repo, "config", "--unset", "core.worktree")
    shutil.move(repo / ".git", tmp_path / "aside")
    with pytest.raises(WorktreeError):
        worktrees.open_repository(repo)
    git(repo, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"))
    assert worktrees.open_repository(repo).common_dir == tmp_path / "elsewhere"

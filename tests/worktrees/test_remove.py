"""Removing: nothing that exists nowhere else is lost, and what is dropped comes back."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen import clock, worktrees
from bullpen.worktrees import Removed, Site, Spec
from tests.listing import list_files
from tests.waiting import wait_until
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]


def is_gone(site: Site, name: str) -> bool:
    listed = {entry.path for entry in worktrees.list_all(site)}
    path = worktrees.path_for(site, name)
    return not os.path.lexists(path) and path not in listed


def kept_files(site: Site, ref: str) -> set[str]:
    return set(git(site.repo.common_dir, "ls-tree", "-r", "--name-only", ref).split("\n"))


# ── what a removal takes ─────────────────────────────────────────────────────


def test_w7_clean_worktree_goes_with_its_branch(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    result = worktrees.remove(site, "amy")
    assert (result.existed, result.branch, result.kept) == (True, "amy", "")
    assert is_gone(site, "amy")
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w7_removing_twice_and_removing_nothing_is_fine(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.remove(site, "amy")
    assert not worktrees.remove(site, "amy").existed
    assert not worktrees.remove(site, "never-was", force=True).existed
    assert refs(site, "refs/bullpen") == set()
    assert_healthy(site)


def test_w7_files_are_deleted_in_the_background(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.remove(site, "amy")
    wait_until(lambda: not list(site.trash.iterdir()))


def test_w7_branch_stays_when_asked(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    result = worktrees.remove(site, "amy", delete_branch=False)
    assert (result.branch, result.branch_left) == ("", "amy")
    assert refs(site) == {"amy", "main"}
    assert_healthy(site)


def test_w7_missing_branch_is_no_error(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--detach")
    git(repo, "branch", "-D", "amy")
    result = worktrees.remove(site, "amy")
    assert (result.existed, result.branch) == (True, "")
    assert is_gone(site, "amy")


def test_w7_read_only_directories_are_deleted_too(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / ".gitignore").write_text("cache/\n.gitignore\n")
    (path / "cache" / "deep").mkdir(parents=True)
    (path / "cache" / "deep" / "file").write_text("x")
    (path / "cache" / "deep").chmod(0o500)
    (path / "cache").chmod(0o500)
    worktrees.remove(site, "amy")
    wait_until(lambda: not list(site.trash.iterdir()))


# ── what needs force ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["modified", "deleted", "staged", "untracked", "mode", "conflict"])
def test_w7_dirty_needs_force(site: Site, repo: Path, failing: Failing, kind: str) -> None:
    path = worktrees.create(site, Spec("amy"))
    file = path / "file0.txt"
    match kind:
        case "modified":
            file.write_text("changed\n")
        case "deleted":
            file.unlink()
        case "staged":
            file.write_text("changed\n")
            git(path, "add", "-A")
        case "untracked":
            (path / "new dir").mkdir()
            (path / "new dir" / "new\nfile").write_text("x")
        case "mode":
            file.chmod(0o755)
        case "conflict":
            commit(repo, "file0.txt", "theirs\n")
            commit(path, "file0.txt", "ours\n")
            git(path, "merge", "main", check=False)
    error = failing("DIRTY", worktrees.remove, site, "amy")
    assert error.details["files"] == (
        ["new dir/new\nfile"] if kind == "untracked" else ["file0.txt"]
    )
    assert "--force" in error.hint and "restore amy" in error.hint
    assert path.is_dir() and worktrees.info(site, "amy").dirty
    assert worktrees.remove(site, "amy", force=True).kept
    assert is_gone(site, "amy")
    assert_healthy(site)


def test_w7_locked_needs_force_and_says_why(site: Site, failing: Failing) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", "an agent works here")
    assert "an agent works here" in failing("LOCKED", worktrees.remove, site, "amy").message
    worktrees.remove(site, "amy", force=True)
    assert is_gone(site, "amy")


@pytest.mark.parametrize("mark", [worktrees.AGENT_RUNS, worktrees.TASK_WORKS])
def test_w7_no_force_takes_a_worktree_that_somebody_works_in(
    site: Site, failing: Failing, mark: str
) -> None:
    worktrees.create_many(site, [Spec("amy"), Spec("bob")])
    worktrees.lock(site, "amy", f"{mark} · bullpen stop amy")
    for look in (worktrees.remove, worktrees.plan_removal):
        assert failing("LOCKED", look, site, "amy", force=True).hint.startswith("bullpen stop amy")
    assert worktrees.full_cleanup(site, force=True).left == {"amy": f"amy is in use: {mark}"}
    worktrees.unlock(site, "amy")
    assert worktrees.remove(site, "amy", force=True).existed


def test_w7_dry_run_tells_what_would_be_done_and_touches_nothing(site: Site, repo: Path) -> None:
    worktrees.create_many(site, [Spec("amy"), Spec("bob")])
    (site.base / "bob" / "new").write_text("x")
    git(repo, "branch", "swarm/old-1")
    git(repo, "branch", "swarm/unmerged-2", orphan_commit(repo))
    before = (worktrees.list_all(site), refs(site, "refs"))
    assert worktrees.plan_removal(site, "nobody") == Removed("nobody", existed=False)
    assert worktrees.plan_removal(site, "amy").branch == "amy"
    for force in (False, True):
        planned = worktrees.full_cleanup(site, force=force, dry_run=True)
        assert before == (worktrees.list_all(site), refs(site, "refs"))
    done = worktrees.full_cleanup(site, force=True)
    assert (planned.worktrees, planned.branches) == (done.worktrees, done.branches)
    assert planned.worktrees == ["amy", "bob"]


def test_w7_refused_removal_changes_nothing(site: Site, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    before = (worktrees.list_all(site), git(path, "status", "--porcelain"), refs(site, "refs"))
    failing("DIRTY", worktrees.remove, site, "amy")
    assert before == (worktrees.list_all(site), git(path, "status", "--porcelain"), refs(site))
    assert_healthy(site)


def test_w7_ignored_files_do_not_make_it_dirty(site: Site, repo: Path) -> None:
    commit(repo, ".gitignore", "*.log\n")
    path = worktrees.create(site, Spec("amy"))
    (path / "debug.log").write_text("x")
    worktrees.remove(site, "amy")
    assert is_gone(site, "amy")


# ── unmerged branches ────────────────────────────────────────────────────────


def test_w7_unmerged_branch_is_kept_unless_forced(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    tip = commit(path, "two.txt")
    result = worktrees.remove(site, "amy")
    assert (result.branch_left, result.unique_commits, result.branch) == ("amy", 2, "")
    assert git(repo, "rev-parse", "amy") == tip
    result = worktrees.remove(site, "amy", force=True)
    assert (result.branch, result.branch_left) == ("amy", "")
    assert git(repo, "rev-parse", f"{result.kept}^1") == tip
    assert refs(site) == {"main"}


@pytest.mark.parametrize("where", ["merge", "rebase", "other-branch", "tag", "remote"])
def test_w7_branch_whose_commits_exist_elsewhere_goes(site: Site, repo: Path, where: str) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    commit(repo, "unrelated.txt")
    match where:
        case "merge":
            git(repo, "merge", "-q", "--no-edit", "amy")
        case "rebase":
            git(path, "rebase", "-q", "main")
            git(repo, "merge", "-q", "--ff-only", "amy")
        case "other-branch":
            git(repo, "branch", "other", "amy")
        case "tag":
            git(repo, "tag", "v1", "amy")
        case "remote":
            git(repo, "update-ref", "refs/remotes/origin/amy", "refs/heads/amy")
    result = worktrees.remove(site, "amy")
    assert (result.branch, result.kept) == ("amy", "")
    assert "amy" not in refs(site)


@pytest.mark.parametrize("later", [False, True], ids=["at-once", "main-moved-on"])
def test_w7_squash_merge_is_recognised(site: Site, repo: Path, later: bool) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    commit(path, "file0.txt", "changed\n")
    tip = commit(path, "one.txt", "better\n")
    commit(repo, "before.txt")
    git(repo, "merge", "-q", "--squash", "amy")
    git(repo, "commit", "-qm", "Squashed")
    if later:
        for name in ("x.txt", "y.txt"):
            commit(repo, name)
    result = worktrees.remove(site, "amy")
    assert result.branch == "amy"
    assert refs(site) == {"main"}
    # The single commits themselves are nowhere else: a copy is kept all the same.
    assert git(repo, "rev-parse", f"{result.kept}^1") == tip


def test_w7_squash_merge_on_the_remote_is_recognised(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    commit(path, "two.txt")
    git(repo, "checkout", "-q", "--detach")
    git(repo, "merge", "-q", "--squash", "amy")
    git(repo, "commit", "-qm", "Squashed on the server")
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(repo, "checkout", "-q", "main")
    assert worktrees.remove(site, "amy").branch == "amy"


def test_w7_squash_merge_of_one_that_went_on_from_another_is_recognised(
    site: Site, repo: Path
) -> None:
    commit(worktrees.create(site, Spec("ann")), "one.txt")
    commit(worktrees.create(site, Spec("ben", base="ann", lands_in="main")), "two.txt")
    git(repo, "merge", "-q", "--squash", "ben")
    git(repo, "commit", "-qm", "Squashed")
    assert worktrees.remove(site, "ben").branch == "ben"


def test_w7_work_done_and_reverted_is_not_taken_for_merged(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    git(path, "revert", "--no-edit", "HEAD")
    commit(repo, "unrelated.txt")
    result = worktrees.remove(site, "amy")
    assert (result.branch, result.branch_left) == ("", "amy")
    assert "amy" in refs(site)


def test_w7_squash_merge_of_only_a_part_keeps_the_branch(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    git(repo, "merge", "-q", "--squash", "amy")
    git(repo, "commit", "-qm", "Squashed")
    commit(path, "two.txt")
    assert worktrees.remove(site, "amy").branch_left == "amy"


def test_w7_branch_checked_out_elsewhere_is_left(site: Site, tmp_path: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--detach")
    git(path, "worktree", "add", "-q", str(tmp_path / "elsewhere"), "amy")
    assert worktrees.remove(site, "amy", force=True).branch == ""
    assert git(tmp_path / "elsewhere", "symbolic-ref", "HEAD") == "refs/heads/amy"
    assert git(tmp_path / "elsewhere", "status", "--porcelain") == ""
    assert_healthy(site)


def test_w7_upstream_of_the_deleted_branch_is_forgotten(site: Site, repo: Path) -> None:
    worktrees.create(site, Spec("amy"))
    git(repo, "config", "branch.amy.remote", "origin")
    git(repo, "config", "branch.amy.merge", "refs/heads/old")
    worktrees.remove(site, "amy")
    assert git(repo, "config", "--get-regexp", "^branch\\.amy", check=False) == ""


def test_w7_branch_that_the_agent_made_itself_stays(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "-b", "idea")
    commit(path, "idea.txt")
    worktrees.remove(site, "amy")
    assert refs(site) == {"main", "idea"}


def test_w7_commits_on_no_branch_need_force_and_are_kept(
    site: Site, repo: Path, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--detach")
    lost = commit(path, "lost.txt")
    error = failing("DIRTY", worktrees.remove, site, "amy")
    assert "on no branch" in error.message and lost[:12] in error.hint
    result = worktrees.remove(site, "amy", force=True)
    assert git(repo, "rev-parse", f"{result.kept}^1") == lost


# ── directories that are no worktree ─────────────────────────────────────────


def test_w7_directory_that_is_no_worktree_is_removed_but_held(site: Site) -> None:
    path = site.base / "amy"
    path.mkdir(parents=True)
    (path / "precious").write_text("x")
    result = worktrees.remove(site, "amy")
    assert not path.exists()
    assert result.aside is not None and (result.aside / "precious").read_text() == "x"
    worktrees.gc(site, now=clock.now() + timedelta(days=29))
    assert (result.aside / "precious").exists()
    worktrees.gc(site, now=clock.now() + timedelta(days=31))
    wait_until(lambda: not result.aside.exists())


def test_w7_file_in_the_place_of_a_worktree_is_held(site: Site) -> None:
    site.base.mkdir()
    (site.base / "amy").write_text("precious")
    result = worktrees.remove(site, "amy")
    assert not (site.base / "amy").exists()
    assert result.aside is not None and result.aside.read_text() == "precious"


def test_w7_worktree_without_git_file_is_removed(site: Site, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / ".git").unlink()
    (path / "new").write_text("x")
    failing("WORKTREE_CORRUPT", worktrees.info, site, "amy")
    result = worktrees.remove(site, "amy", force=True)
    assert is_gone(site, "amy")
    assert "new" in kept_files(site, result.kept)
    assert_healthy(site)


@pytest.mark.parametrize("broken", ["index", "HEAD"])
def test_w7_worktree_that_git_cannot_read_can_be_removed(
    site: Site, repo: Path, broken: str
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    admin = Path(git(path, "rev-parse", "--absolute-git-dir"))
    (admin / broken).write_bytes(b"\0" * 50)
    result = worktrees.remove(site, "amy", force=True)
    assert is_gone(site, "amy")
    assert result.aside is not None and (result.aside / "new").read_text() == "x"
    assert git(repo, "status", "--porcelain") == ""


def test_w7_files_deleted_by_hand(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    shutil.rmtree(path)
    assert worktrees.remove(site, "amy").existed
    assert is_gone(site, "amy")
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w7_worktree_of_another_repository_is_left_alone(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    path = worktrees.create(other, Spec("amy"))
    error = failing("WORKTREE_NOT_FOUND", worktrees.remove, site, "amy", force=True)
    assert str(tmp_path / "other") in error.message
    assert git(path, "status", "--porcelain") == ""
    assert_healthy(other)


def test_w7_stale_record_does_not_take_another_repositorys_worktree(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    shutil.rmtree(worktrees.create(site, Spec("amy")))
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    path = worktrees.create(other, Spec("amy"))
    (path / "new").write_text("x")
    failing("WORKTREE_NOT_FOUND", worktrees.remove, site, "amy", force=True)
    assert (path / "new").read_text() == "x"
    assert_healthy(other)


def test_w7_worktree_with_a_planted_git_file_can_be_removed(site: Site, tmp_path: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    evil = make_repo(tmp_path / "evil")
    (path / ".git").write_text(f"gitdir: {evil}/.git\n")
    (path / "new").write_text("x")
    result = worktrees.remove(site, "amy", force=True)
    assert is_gone(site, "amy")
    assert "new" in kept_files(site, result.kept)
    assert git(evil, "status", "--porcelain") == ""


# ── links ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("repaired", [False, True])
def test_w7_of_a_link_only_the_link_and_the_record_go(
    site: Site, tmp_path: Path, repaired: bool
) -> None:
    path = worktrees.create(site, Spec("amy"))
    moved = tmp_path / "big disk" / "amy"
    moved.parent.mkdir()
    path.rename(moved)
    path.symlink_to(moved)
    if repaired:
        git(moved, "worktree", "repair")
    (moved / "new").write_text("x")
    worktrees.remove(site, "amy")
    assert not os.path.lexists(path)
    assert (moved / "new").read_text() == "x" and (moved / "file0.txt").exists()
    assert [entry.branch for entry in worktrees.list_all(site)] == ["main"]
    assert_healthy(site)


def test_w7_link_to_another_worktree_leaves_that_one_whole(site: Site) -> None:
    bob = worktrees.create(site, Spec("bob"))
    (site.base / "amy").symlink_to(bob)
    worktrees.remove(site, "amy", force=True)
    assert not os.path.lexists(site.base / "amy")
    assert git(bob, "status", "--porcelain") == ""
    assert worktrees.info(site, "bob").branch == "bob"


def test_w7_link_to_nowhere_goes(site: Site, tmp_path: Path) -> None:
    site.base.mkdir()
    (site.base / "amy").symlink_to(tmp_path / "nowhere")
    worktrees.remove(site, "amy")
    assert not os.path.lexists(site.base / "amy")


def test_w7_link_to_a_strangers_directory_leaves_its_files(site: Site, tmp_path: Path) -> None:
    stranger = make_repo(tmp_path / "stranger")
    site.base.mkdir()
    (site.base / "amy").symlink_to(stranger)
    worktrees.remove(site, "amy", force=True)
    assert not os.path.lexists(site.base / "amy")
    assert git(stranger, "status", "--porcelain") == ""


# ── repositories inside ──────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["lib", "vendor/lib"])
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "unborn"])
def test_w7_repository_inside_needs_force_and_is_held(
    site: Site, failing: Failing, place: str, commits: bool
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / place).mkdir(parents=True)
    git(path / place, "init", "-q")
    (path / place / "loose").write_text("x")
    tip = commit(path / place, "work.txt") if commits else ""
    (path / "new").write_text("x")
    failing("DIRTY", worktrees.remove, site, "amy")
    result = worktrees.remove(site, "amy", force=True)
    assert is_gone(site, "amy")
    assert "new" in kept_files(site, result.kept)
    assert result.aside is not None
    assert (result.aside / place / "loose").read_text() == "x"
    if commits:
        assert git(result.aside / place, "rev-parse", "HEAD") == tip


def test_w7_repository_inside_that_was_added_as_a_link_is_held(
    site: Site, repo: Path, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "lib").mkdir()
    git(path / "lib", "init", "-q")
    tip = commit(path / "lib", "work.txt")
    git(path, "add", "lib")
    git(path, "commit", "-qm", "Oops")
    git(repo, "merge", "-q", "amy")
    error = failing("DIRTY", worktrees.remove, site, "amy")
    assert error.details["repositories"] == ["lib"]
    result = worktrees.remove(site, "amy", force=True)
    assert result.aside is not None
    assert git(result.aside / "lib", "rev-parse", "HEAD") == tip


def test_w7_commits_of_a_submodule_are_held(
    site: Site, repo: Path, tmp_path: Path, failing: Failing
) -> None:
    allow = ("-c", "protocol.file.allow=always")
    make_repo(tmp_path / "library")
    git(repo, *allow, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    git(repo, "commit", "-qm", "Add lib")
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""
    git(path, *allow, "submodule", "update", "-q", "--init")
    tip = commit(path / "lib", "work.txt")
    failing("DIRTY", worktrees.remove, site, "amy")
    result = worktrees.remove(site, "amy", force=True)
    assert result.aside is not None
    assert (result.aside / "lib" / "work.txt").exists()
    saved = result.aside.with_name(f"{result.aside.name}.modules") / "lib"
    held = ("--git-dir", str(saved), "--work-tree", "/")
    assert git(repo, *held, "cat-file", "-t", tip) == "commit"
    assert_healthy(site)


def test_w7_submodule_that_was_never_fetched_needs_no_force(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    make_repo(tmp_path / "library")
    git(
        repo,
        *("-c", "protocol.file.allow=always", "submodule", "add", "-q"),
        *(str(tmp_path / "library"), "lib"),
    )
    git(repo, "commit", "-qm", "Add lib")
    worktrees.create(site, Spec("amy"))
    assert worktrees.remove(site, "amy").branch == "amy"


# ── the safety copy and its way back ─────────────────────────────────────────


def fill_with_work(path: Path) -> None:
    (path / "file0.txt").write_text("modified\n")
    (path / "file1.txt").unlink()
    (path / "new dir").mkdir()
    (path / "new dir" / "sp ace\nand ünïcode").write_text("untracked")
    (path / "tool").write_text("#!/bin/sh\n")
    (path / "tool").chmod(0o755)
    (path / "file2.txt").chmod(0o755)
    (path / "link").symlink_to("nowhere/at all")
    (path / "staged").write_text("staged\n")
    git(path, "add", "staged")
    (path / "debug.log").write_text("ignored")


def snapshot(path: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for file in path.rglob("*"):
        name = str(file.relative_to(path))
        if file.is_symlink():
            found[name] = (0, os.fsencode(file.readlink()))
        elif file.is_file() and name != ".git":
            found[name] = (file.stat().st_mode & 0o100, file.read_bytes())
    return found


def test_w7_forced_removal_keeps_head_and_files_but_not_ignored_ones(
    site: Site, repo: Path
) -> None:
    commit(repo, ".gitignore", "*.log\n")
    path = worktrees.create(site, Spec("amy"))
    head = commit(path, "committed.txt")
    fill_with_work(path)
    result = worktrees.remove(site, "amy", force=True)
    assert result.kept.startswith("refs/bullpen/kept/amy/")
    assert git(repo, "rev-parse", f"{result.kept}^1") == head
    files = set(git(repo, "ls-tree", "-r", "-z", "--name-only", result.kept).split("\0"))
    assert {"committed.txt", "staged", "link", "tool", "new dir/sp ace\nand ünïcode"} <= files
    assert not {"debug.log", "file1.txt"} & files


def test_w7_restore_brings_back_exactly_what_was_dropped(site: Site, repo: Path) -> None:
    commit(repo, ".gitignore", "*.log\n")
    spec = Spec("amy", branch="task/amy", role="coder", parent="boss", depth=1)
    path = worktrees.create(site, spec)
    head = commit(path, "committed.txt")
    fill_with_work(path)
    before, info = snapshot(path), worktrees.info(site, "amy")
    worktrees.remove(site, "amy", force=True)
    assert worktrees.restore(site, "amy") == path
    before.pop("debug.log")
    assert snapshot(path) == before
    again = worktrees.info(site, "amy")
    assert (again.branch, again.head) == ("task/amy", head)
    assert (again.role, again.parent, again.depth) == ("coder", "boss", 1)
    assert (again.base, again.created_at, again.ahead) == (info.base, info.created_at, 1)
    status = git(path, "status", "--porcelain", "--untracked-files=all").split("\n")
    assert [line for line in status if "file" in line] == [
        " M file0.txt",
        " D file1.txt",
        " M file2.txt",
    ]
    assert {line[:2] for line in status} == {" M", " D", "??"}
    assert_healthy(site)


def test_w7_restore_when_the_branch_was_left(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True, delete_branch=False)
    worktrees.restore(site, "amy")
    assert (path / "new").read_text() == "x"
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/amy"


def test_w7_restore_of_a_detached_worktree(site: Site) -> None:
    path = worktrees.create(site, Spec("amy", detached=True))
    head = commit(path, "one.txt")
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    info = worktrees.info(site, "amy")
    assert (info.branch, info.head, info.changes) == ("", head, ("new",))
    assert "amy" not in refs(site)


def test_w7_restore_takes_the_newest_copy(site: Site) -> None:
    for text in ("first", "second", "third"):
        path = worktrees.create(site, Spec("amy"))
        (path / "new").write_text(text)
        worktrees.remove(site, "amy", force=True)
    assert len(worktrees.list_safety_copies(site.repo)) == 3
    worktrees.restore(site, "amy")
    assert (path / "new").read_text() == "third"


def test_w7_copies_of_one_moment_do_not_replace_each_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = clock.now()
    monkeypatch.setattr(clock, "now", lambda: moment)
    for text in ("first", "second"):
        path = worktrees.create(site, Spec("amy"))
        (path / "new").write_text(text)
        worktrees.remove(site, "amy", force=True)
    newest, oldest = worktrees.list_safety_copies(site.repo)
    assert newest.kept_at == oldest.kept_at
    texts = [git(path.parents[1] / "repo", "show", f"{copy.ref}:new") for copy in (newest, oldest)]
    assert texts == ["second", "first"]


def test_w7_restore_never_touches_a_worktree_that_is_there(site: Site, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "file0.txt").write_text("old work\n")
    (path / "old").write_text("x")
    worktrees.remove(site, "amy", force=True)
    worktrees.create(site, Spec("amy"))
    failing("WORKTREE_EXISTS", worktrees.restore, site, "amy")
    assert git(path, "status", "--porcelain") == ""


def test_w7_restore_of_nothing_says_what_there_is(site: Site, failing: Failing) -> None:
    failing("WORKTREE_NOT_FOUND", worktrees.restore, site, "amy")
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    assert "amy" in failing("WORKTREE_NOT_FOUND", worktrees.restore, site, "bob").hint


def test_w7_restore_of_a_subtree(site: Site) -> None:
    spec = Spec("swarm~lead.part", branch="swarm/lead.part")
    path = worktrees.create(site, spec)
    (path / "new").write_text("x")
    worktrees.remove(site, spec.name, force=True)
    assert [copy.name for copy in worktrees.list_safety_copies(site.repo)] == [spec.name]
    worktrees.restore(site, spec.name)
    assert (path / "new").read_text() == "x"
    assert worktrees.info(site, spec.name).branch == "swarm/lead.part"


def test_w7_restore_brings_back_head_and_branch_when_they_differ(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    tip = commit(path, "one.txt")
    git(path, "checkout", "-q", "--detach", "main")
    head = commit(path, "two.txt")
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert worktrees.info(site, "amy").head == head
    assert worktrees.info(site, "amy").branch == ""
    assert git(repo, "rev-parse", "amy") == tip


def test_w7_restore_when_head_was_detached_and_the_branch_left(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--detach")
    head = commit(path, "two.txt")
    worktrees.remove(site, "amy", force=True, delete_branch=False)
    worktrees.restore(site, "amy")
    assert worktrees.info(site, "amy").head == head


def test_w7_restore_of_a_worktree_on_a_branch_of_its_agents_own(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "-b", "idea")
    head = commit(path, "idea.txt")
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/idea"
    assert worktrees.info(site, "amy").head == head
    assert (path / "new").read_text() == "x"
    assert git(repo, "rev-parse", "amy") == git(repo, "rev-parse", "main")


def test_w7_planted_copies_are_passed_over(site: Site, repo: Path, tmp_path: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    git(repo, "update-ref", "refs/bullpen/kept/stray", "HEAD")
    git(repo, "update-ref", "refs/bullpen/kept/amy/99999999T999999", "HEAD")
    assert [copy.name for copy in worktrees.list_safety_copies(site.repo)] == ["amy"]
    assert worktrees.gc(site, now=clock.now() + timedelta(days=31)).expired == 1


def test_w7_planted_copy_cannot_write_outside_the_records(
    site: Site, repo: Path, tmp_path: Path, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    kept = worktrees.remove(site, "amy", force=True).kept
    message = git(repo, "log", "-1", "--format=%B", kept).replace(
        '"name": "amy"', '"name": "../../outside"'
    )
    planted = git(repo, "commit-tree", f"{kept}^{{tree}}", "-p", f"{kept}^1", "-m", message)
    git(repo, "update-ref", "refs/bullpen/kept/amy/20991231T000000", planted)
    worktrees.restore(site, "amy")
    assert not list_files(tmp_path, "**/outside.json")
    assert worktrees.info(site, "amy").branch == "amy"


def test_w7_copy_that_is_none_is_told_as_such(site: Site, repo: Path, failing: Failing) -> None:
    git(repo, "update-ref", "refs/bullpen/kept/amy/20991231T000000", "HEAD")
    failing("WORKTREE_CORRUPT", worktrees.restore, site, "amy")
    assert not worktrees.exists(site, "amy")


def test_w7_copy_that_cannot_be_written_stops_the_removal(
    site: Site, repo: Path, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    git(repo, "update-ref", "refs/bullpen/kept/amy", "HEAD")  # in the way of amy/<time>
    failing("GIT_FAILED", worktrees.remove, site, "amy", force=True)
    assert (path / "new").read_text() == "x"
    assert worktrees.info(site, "amy").changes == ("new",)


def test_w7_copies_expire_after_30_days(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    assert worktrees.gc(site, now=clock.now() + timedelta(days=29)).expired == 0
    assert len(worktrees.list_safety_copies(site.repo)) == 1
    assert worktrees.gc(site, now=clock.now() + timedelta(days=30, minutes=1)).expired == 1
    assert worktrees.list_safety_copies(site.repo) == []


def test_w15_trash_left_by_a_crash_is_finished_by_gc(site: Site) -> None:
    left = site.trash / "0.amy.1234"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "file").write_text("x")
    worktrees.gc(site)
    wait_until(lambda: not left.exists())


# ── many at once ─────────────────────────────────────────────────────────────


def test_w7_remove_all_counts_and_leaves_what_needs_force(site: Site) -> None:
    for name in ("amy", "bob", "cat", "dan"):
        worktrees.create(site, Spec(name))
    (site.base / "bob" / "new").write_text("x")
    worktrees.lock(site, "cat")
    assert worktrees.remove_all(site) == 2
    assert {entry.name for entry in worktrees.list_managed(site)} == {"bob", "cat"}
    assert worktrees.remove_all(site, force=True) == 2
    assert worktrees.list_managed(site) == []
    assert worktrees.remove_all(site) == 0
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w7_remove_all_is_not_stopped_by_a_worktree_made_by_hand(site: Site, repo: Path) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.create(site, Spec("zoe"))
    git(repo, "worktree", "add", "-q", "-b", "mine", str(site.base / "My own"))
    assert worktrees.remove_all(site) >= 2
    assert not worktrees.exists(site, "amy") and not worktrees.exists(site, "zoe")
    assert "mine" in refs(site)


def test_w7_prune_only_under_the_base(site: Site, repo: Path, tmp_path: Path) -> None:
    shutil.rmtree(worktrees.create(site, Spec("amy")))
    worktrees.create(site, Spec("bob"))
    shutil.rmtree(worktrees.create(site, Spec("cat", detached=True)))
    worktrees.create(site, Spec("locked"))
    worktrees.lock(site, "locked")
    shutil.rmtree(site.base / "locked")
    git(repo, "worktree", "add", "-q", "-b", "usb", str(tmp_path / "usb"))
    shutil.rmtree(tmp_path / "usb")
    git(repo, "worktree", "add", "-q", "-b", "odd", str(site.base / "odd name"))
    shutil.rmtree(site.base / "odd name")
    worktrees.prune(site)
    assert {entry.name for entry in worktrees.list_all(site)} - {"odd name"} == {
        *("repo", "bob", "locked", "usb")
    }
    # The branch stays: it is not prune's to judge.
    assert "amy" in refs(site)


def test_w7_prune_keeps_commits_that_were_on_no_branch(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy", detached=True))
    lost = commit(path, "lost.txt")
    shutil.rmtree(path)
    assert worktrees.prune(site) == 1
    [copy] = worktrees.list_safety_copies(site.repo)
    assert git(repo, "rev-parse", f"{copy.ref}^1") == lost


def test_w7_creating_over_deleted_files_keeps_commits_that_were_on_no_branch(
    site: Site, repo: Path
) -> None:
    path = worktrees.create(site, Spec("amy", detached=True))
    lost = commit(path, "lost.txt")
    shutil.rmtree(path)
    worktrees.create(site, Spec("amy", detached=True))
    [copy] = worktrees.list_safety_copies(site.repo)
    assert git(repo, "rev-parse", f"{copy.ref}^1") == lost


def test_w7_full_cleanup_counts(site: Site, repo: Path) -> None:
    worktrees.create_many(site, [Spec("amy"), Spec("bob"), Spec("cat", setup="true")])
    (site.base / "bob" / "new").write_text("x")
    git(repo, "branch", "swarm/old-1")
    git(repo, "branch", "swarm/unmerged-2")
    git(repo, "update-ref", "refs/heads/swarm/unmerged-2", orphan_commit(repo))
    git(repo, "branch", "swarms/not-ours")
    worktrees.create(site, Spec("lost"))
    shutil.rmtree(site.base / "lost")
    cleaned = worktrees.full_cleanup(site)
    assert sorted(cleaned.worktrees) == ["amy", "cat", "lost"]
    assert cleaned.branches == ["swarm/old-1"]
    assert set(cleaned.left) == {"bob", "swarm/unmerged-2"}
    assert refs(site) == {"main", "bob", "swarm/unmerged-2", "swarms/not-ours"}
    cleaned = worktrees.full_cleanup(site, force=True)
    assert (cleaned.worktrees, cleaned.branches) == (["bob"], ["swarm/unmerged-2"])
    assert {copy.name for copy in worktrees.list_safety_copies(site.repo)} == {
        "bob",
        "swarm~unmerged-2",
    }
    wait_until(lambda: not site.base.exists())
    assert_healthy(site)


def test_w7_full_cleanup_leaves_a_base_with_a_strangers_file(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    (site.base / "notes.txt").write_text("mine")
    worktrees.full_cleanup(site)
    assert (site.base / "notes.txt").read_text() == "mine"


def orphan_commit(repo: Path) -> str:
    return git(repo, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Only here")


def test_w7_cleanup_of_branches_can_be_undone(site: Site, repo: Path) -> None:
    tip = orphan_commit(repo)
    git(repo, "branch", "swarm/x-1", tip)
    assert worktrees.cleanup_branches(site, force=True).branches == ["swarm/x-1"]
    worktrees.restore(site, "swarm~x-1")
    assert git(repo, "rev-parse", "swarm/x-1") == tip


def test_w7_files_that_git_cannot_read_need_force_and_are_held(
    site: Site, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / "work.txt").write_text("work")
    (worktrees_admin(site, path) / "index").write_bytes(b"torn")
    failing("WORKTREE_CORRUPT", worktrees.remove, site, "amy")
    assert (path / "work.txt").exists()
    aside = worktrees.remove(site, "amy", force=True).aside
    assert aside is not None
    assert (aside / "work.txt").read_text() == "work"


def worktrees_admin(site: Site, path: Path) -> Path:
    return next(a for a in site.repo.admin_dir.iterdir() if str(path) in (a / "gitdir").read_text())

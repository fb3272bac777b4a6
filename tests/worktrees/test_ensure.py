"""`ensure`: what `run` uses. Reuse, check out again, make, or say why not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]


def test_w5_makes_it_when_there_is_none(site: Site) -> None:
    path = worktrees.ensure(site, Spec("amy", role="coder"))
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/amy"
    assert worktrees.info(site, "amy").role == "coder"
    assert_healthy(site)


def test_w5_reuses_an_intact_one_as_it_is(site: Site) -> None:
    path = worktrees.ensure(site, Spec("amy"))
    commit(path, "work.txt")
    git(path, "checkout", "-q", "-b", "elsewhere")
    (path / "file0.txt").write_text("half done\n")
    (path / "new").write_text("x")
    before = (git(path, "status", "--porcelain"), refs(site), worktrees.info(site, "amy"))
    assert worktrees.ensure(site, Spec("amy", setup="touch setup-ran; exit 1")) == path
    after = (git(path, "status", "--porcelain"), refs(site), worktrees.info(site, "amy"))
    assert after == before


def test_w5_reuses_a_locked_one(site: Site) -> None:
    path = worktrees.ensure(site, Spec("amy"))
    worktrees.lock(site, "amy", "agent")
    assert worktrees.ensure(site, Spec("amy")) == path
    assert worktrees.info(site, "amy").locked == "agent"


def test_w5_one_of_another_repository_is_named(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    path = worktrees.create(other, Spec("amy"))
    error = failing("WORKTREE_EXISTS", worktrees.ensure, site, Spec("amy"))
    assert str(tmp_path / "other") in error.message
    assert git(path, "status", "--porcelain") == ""
    assert refs(site) == {"main"}


@pytest.mark.parametrize(
    "kind",
    [
        "no git file",
        "points nowhere",
        "garbage",
        "nul",
        "pipe",
        "link loop",
        "directory",
        "empty directory",
        "plain file",
        "admin gone",
        "planted",
    ],
)
def test_w5_corrupt_is_told_with_the_way_out(
    site: Site, tmp_path: Path, failing: Failing, kind: str
) -> None:
    path = worktrees.ensure(site, Spec("amy"))
    admin = Path(git(path, "rev-parse", "--absolute-git-dir"))
    if kind in {"empty directory", "plain file"}:
        shutil.rmtree(path)
        path.mkdir() if kind == "empty directory" else path.write_text("x")
    else:
        (path / ".git").unlink()
    match kind:
        case "points nowhere":
            (path / ".git").write_text("gitdir: /nowhere\n")
        case "garbage":
            (path / ".git").write_bytes(b"\xff\xfe garbage")
        case "nul":
            (path / ".git").write_bytes(b"gitdir: a\0b\n")
        case "pipe":
            os.mkfifo(path / ".git")
        case "link loop":
            (path / ".git").symlink_to(".git")
        case "directory":
            (path / ".git").mkdir()
        case "admin gone":
            (path / ".git").write_text(f"gitdir: {admin}\n")
            shutil.rmtree(admin)
        case "planted":
            evil = make_repo(tmp_path / "evil")
            (path / ".git").write_text(f"gitdir: {evil}/.git\n")
    for function in (worktrees.ensure, lambda site, spec: worktrees.info(site, spec.name)):
        error = failing("WORKTREE_CORRUPT", function, site, Spec("amy"))
        assert "bullpen worktree remove amy" in error.hint
    worktrees.remove(site, "amy", force=True)
    assert worktrees.ensure(site, Spec("amy")) == path
    assert git(path, "status", "--porcelain") == ""
    assert_healthy(site)


def test_w5_checks_out_its_own_branch_again(site: Site, repo: Path) -> None:
    path = worktrees.ensure(site, Spec("amy", role="coder", parent="boss", depth=1))
    tip = commit(path, "work.txt")
    born = worktrees.info(site, "amy").created_at
    assert worktrees.remove(site, "amy").branch_left == "amy"
    commit(repo, "later.txt")
    assert worktrees.ensure(site, Spec("amy")) == path
    info = worktrees.info(site, "amy")
    assert (info.head, info.branch, info.role, info.parent) == (tip, "amy", "coder", "boss")
    assert (info.created_at, info.ahead, info.behind) == (born, 1, 1)
    assert git(path, "status", "--porcelain") == ""
    assert_healthy(site)


def test_w5_checks_out_again_when_the_files_were_deleted_by_hand(site: Site) -> None:
    path = worktrees.ensure(site, Spec("amy", branch="task/amy"))
    tip = commit(path, "work.txt")
    shutil.rmtree(path)
    worktrees.ensure(site, Spec("amy", branch="task/amy"))
    assert git(path, "rev-parse", "HEAD") == tip
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/task/amy"
    assert_healthy(site)


def test_w5_failure_while_checking_out_again_leaves_the_branch(
    site: Site, repo: Path, failing: Failing
) -> None:
    path = worktrees.ensure(site, Spec("amy"))
    tip = commit(path, "work.txt")
    worktrees.remove(site, "amy")
    failing("SETUP_FAILED", worktrees.ensure, site, Spec("amy", setup="false"))
    assert not path.exists()
    assert git(repo, "rev-parse", "amy") == tip
    worktrees.ensure(site, Spec("amy"))
    assert git(path, "rev-parse", "HEAD") == tip


def test_w5_foreign_branch_is_not_taken(site: Site, repo: Path, failing: Failing) -> None:
    git(repo, "branch", "amy")
    failing("BRANCH_EXISTS", worktrees.ensure, site, Spec("amy"))
    assert not worktrees.exists(site, "amy")
    assert_healthy(site)


def test_w5_branch_of_that_name_of_another_repositorys_agent_is_foreign(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    path = worktrees.create(other, Spec("amy"))
    commit(path, "work.txt")
    worktrees.remove(other, "amy")
    git(site.repo.common_dir, "branch", "amy")
    failing("BRANCH_EXISTS", worktrees.ensure, site, Spec("amy"))


def test_w5_its_branch_in_use_elsewhere_is_told(
    site: Site, repo: Path, tmp_path: Path, failing: Failing
) -> None:
    path = worktrees.ensure(site, Spec("amy"))
    commit(path, "work.txt")
    worktrees.remove(site, "amy")
    git(repo, "worktree", "add", "-q", str(tmp_path / "mine"), "amy")
    error = failing("BRANCH_EXISTS", worktrees.ensure, site, Spec("amy"))
    assert str(tmp_path / "mine") in error.message
    assert git(tmp_path / "mine", "status", "--porcelain") == ""


def test_w5_persona_and_copy_are_checked_before_anything(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    failing("ROLE_NOT_FOUND", worktrees.ensure, site, Spec("amy", persona=tmp_path / "none"))
    failing("INVALID", worktrees.ensure, site, Spec("amy", copy=("/etc/passwd",)))
    failing("INVALID", worktrees.ensure, site, Spec("../amy"))
    assert refs(site) == {"main"} and not worktrees.exists(site, "amy")


def test_w5_a_branch_deleted_and_made_again_by_hand_is_a_strangers(
    site: Site, repo: Path, failing: Failing
) -> None:
    commit(worktrees.create(site, Spec("amy")), "work.txt")
    worktrees.remove(site, "amy")
    git(repo, "branch", "-D", "amy")
    git(repo, "branch", "amy")
    failing("BRANCH_EXISTS", worktrees.ensure, site, Spec("amy"))
    worktrees.remove(site, "amy")
    assert "amy" in refs(site), "not ours to delete"
    assert_healthy(site)

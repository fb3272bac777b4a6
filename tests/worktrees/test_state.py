"""The state of a worktree: locks, head, changes, differences, conflicts."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import DiffStat, Site, Spec, Stat, state
from bullpen.worktrees.commits import Commits
from bullpen.worktrees.git import is_born_elsewhere
from tests.worktrees.repos import assert_healthy, commit, git, refs

Failing = Callable[..., worktrees.WorktreeError]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("", ""), ("an agent", "an agent"), ("two\n lines", "two lines"), ("  ünï  ", "ünï")],
)
def test_w10_lock_with_a_reason(site: Site, repo: Path, reason: str, kept: str) -> None:
    path = worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", reason)
    assert worktrees.info(site, "amy").locked == kept
    assert "locked" in git(repo, "worktree", "list", "--porcelain")
    git(repo, "worktree", "remove", str(path), check=False)
    assert path.exists()
    worktrees.unlock(site, "amy")
    assert worktrees.info(site, "amy").locked is None


def test_w10_lock_is_gits_own(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", "busy")
    git(repo, "worktree", "unlock", str(path))
    assert worktrees.info(site, "amy").locked is None
    git(repo, "worktree", "lock", "--reason", "by hand", str(path))
    assert worktrees.info(site, "amy").locked == "by hand"


def test_w10_unlocking_an_unlocked_one_is_fine(site: Site, failing: Failing) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.unlock(site, "amy")
    worktrees.unlock(site, "amy")
    assert worktrees.info(site, "amy").locked is None
    failing("WORKTREE_NOT_FOUND", worktrees.unlock, site, "bob")
    failing("WORKTREE_NOT_FOUND", worktrees.lock, site, "bob")


def test_w10_second_lock_says_who_has_it(site: Site, failing: Failing) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", "first")
    assert "first" in failing("LOCKED", worktrees.lock, site, "amy", "second").message
    assert worktrees.info(site, "amy").locked == "first"


def test_w10_head_and_changes(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    assert worktrees.uncommitted_files(site, "amy") == []
    assert commit(path, "one.txt") == worktrees.head(site, "amy")
    (path / "file0.txt").write_text("x\n")
    (path / "file1.txt").unlink()
    git(path, "mv", "file2.txt", "ren amed\n.txt")
    (path / os.fsdecode(b"\xff")).write_text("x")
    assert sorted(worktrees.uncommitted_files(site, "amy")) == [
        *("file0.txt", "file1.txt", "file2.txt", "ren amed\n.txt", os.fsdecode(b"\xff"))
    ]


def test_w10_looking_changes_nothing(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    admin = Path(git(path, "rev-parse", "--absolute-git-dir"))
    (path / "file0.txt").write_text("x\n")
    before = (admin / "index").read_bytes()
    worktrees.info(site, "amy")
    worktrees.diff_stat(site, "amy")
    worktrees.conflicts_with(site, "amy", "main")
    assert (admin / "index").read_bytes() == before
    assert not (admin / "index.lock").exists()


def test_w10_a_busy_agents_index_lock_is_no_obstacle(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    admin = Path(git(path, "rev-parse", "--absolute-git-dir"))
    (admin / "index.lock").write_text("")
    (path / "new").write_text("x")
    assert worktrees.info(site, "amy").changes == ("new",)
    assert worktrees.remove(site, "amy", force=True).kept


def test_w10_diff_stat(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    nothing = worktrees.diff_stat(site, "amy")
    assert nothing == DiffStat(Commits(), Stat(), Stat(), 0, ())
    commit(repo, "theirs.txt", "1\n2\n3\n")  # main moves on: not a change of amy's
    commit(path, "mine.txt", "1\n2\n")
    (path / "file0.txt").write_text("other\n")
    (path / "file1.txt").unlink()
    (path / "binary").write_bytes(b"\0\1\2")
    git(path, "add", "binary")
    (path / "new").write_text("x")
    (site.repo.common_dir / "info/exclude").write_text("*.log\n")
    (path / "ignored.log").write_text("x")
    stat = worktrees.diff_stat(site, "amy")
    assert (stat.commits.count, stat.committed) == (1, Stat(1, 2, 0))
    assert (stat.uncommitted, stat.untracked) == (Stat(2, 1, 2), 2)
    assert sorted(stat.names) == ["binary", "file0.txt", "file1.txt", "new"]


def test_w10_diff_stat_without_base_or_commit(site: Site, repo: Path) -> None:
    git(repo, "branch", "topic")
    path = worktrees.create(site, Spec("amy", base="topic"))
    git(repo, "branch", "-D", "topic")
    commit(path, "one.txt")
    stat = worktrees.diff_stat(site, "amy")
    assert (stat.committed, stat.uncommitted, stat.names) == (Stat(1, 1, 0), Stat(), ())
    git(path, "checkout", "-q", "--orphan", "fresh")
    git(path, "rm", "-q", "--cached", "one.txt")
    stat = worktrees.diff_stat(site, "amy")
    assert (stat.commits, stat.untracked) == (Commits(), 4)


def test_w10_conflicts(site: Site, repo: Path) -> None:
    odd = "sp ace\nünï.txt"
    commit(repo, odd, "start\n")
    amy, bob, cat = (worktrees.create(site, Spec(name)) for name in ("amy", "bob", "cat"))
    for path, text in ((amy, "amy\n"), (bob, "bob\n")):
        commit(path, odd, text)
        commit(path, "file0.txt", text)
    commit(cat, "only-cat.txt")
    before = (refs(site), git(repo, "status", "--porcelain"))
    found = worktrees.conflicts_with(site, "amy", "bob")
    assert found and set(found.files) == {odd, "file0.txt"}
    assert (found.ours, found.theirs) == tuple(worktrees.head(site, n) for n in ("amy", "bob"))
    for one, other in (("amy", "cat"), ("cat", "amy"), ("amy", "main"), ("amy", "amy")):
        assert not worktrees.conflicts_with(site, one, other)
    assert before == (refs(site), git(repo, "status", "--porcelain"))
    assert git(amy, "status", "--porcelain") == ""
    assert_healthy(site)


def test_w10_conflict_of_a_deletion_and_a_change(site: Site) -> None:
    amy, bob = (worktrees.create(site, Spec(name)) for name in ("amy", "bob"))
    git(amy, "rm", "-q", "file0.txt")
    git(amy, "commit", "-qm", "Gone")
    commit(bob, "file0.txt", "changed\n")
    assert worktrees.conflicts_with(site, "amy", "bob").files == ("file0.txt",)


def test_w10_conflicts_with_any_ref(site: Site, repo: Path, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "file0.txt", "amy\n")
    commit(repo, "file0.txt", "main\n")
    git(repo, "branch", "feature/x")
    for other in ("main", "feature/x", git(repo, "rev-parse", "HEAD"), "refs/heads/main"):
        assert worktrees.conflicts_with(site, "amy", other).files == ("file0.txt",)
    for other in ("nothing", "", "-x", "..", "../repo", "main:file0.txt", "a b"):
        failing("REF_NOT_FOUND", worktrees.conflicts_with, site, "amy", other)
    failing("WORKTREE_NOT_FOUND", worktrees.conflicts_with, site, "main", "amy")


def test_w10_conflicts_of_unrelated_histories(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "--orphan", "fresh")
    commit(path, "file0.txt", "quite different\n")
    assert worktrees.conflicts_with(site, "amy", "main").files == ("file0.txt",)


@pytest.mark.parametrize("head", ["ref: refs/heads/fresh\n", "d" * 40 + "\n"])
def test_w10_one_without_a_commit_leaves_the_others_compared(site: Site, head: str) -> None:
    """On a branch that has none yet, or at one that is not there."""
    amy, bob, cat = (worktrees.create(site, Spec(name)) for name in ("amy", "bob", "cat"))
    for path in (amy, bob):
        commit(path, "file0.txt", f"{path.name}\n")
    Path(git(cat, "rev-parse", "--absolute-git-dir"), "HEAD").write_text(head)
    pairs = [("amy", "bob"), ("amy", "cat"), ("cat", "bob"), ("cat", "main")]
    found = worktrees.conflicts_of(site, pairs)
    assert [found[pair].files for pair in pairs] == [("file0.txt",), (), (), ()]


def test_w10_each_worktree_is_asked_once_however_many_pairs_it_is_in(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"tree-{number}" for number in range(5)]
    for name in names:
        worktrees.create(site, Spec(name))
    asked: list[str] = []
    real = state.head

    def head(site: Site, name: str) -> str:
        asked.append(name)
        return real(site, name)

    monkeypatch.setattr(state, "head", head)
    pairs = [*itertools.combinations(names, 2), *((name, "main") for name in names)]
    assert set(worktrees.conflicts_of(site, pairs)) == set(pairs)
    assert sorted(asked) == names


ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda place: place.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
}


@pytest.mark.parametrize("odd", ODD)
def test_x5_what_an_agent_put_in_place_of_gits_own_files_is_not_waited_for(
    site: Site, repo: Path, odd: str, failing: Failing
) -> None:
    """The administrative directory can be written in a sandbox."""
    worktrees.create(site, Spec("amy"))
    [admin] = (repo / ".git" / "worktrees").iterdir()
    ODD[odd](admin / "locked")
    assert worktrees.lock_reason(site, "amy") == ""
    (admin / "index").unlink()
    ODD[odd](admin / "index")
    error = failing("WORKTREE_CORRUPT", worktrees.uncommitted_files, site, "amy")
    assert str(admin / "index") in error.message
    reflog = repo / ".git" / "logs" / "refs" / "heads" / "amy"
    reflog.unlink()
    ODD[odd](reflog)
    assert not is_born_elsewhere(site.repo, "amy")

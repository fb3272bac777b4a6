"""Who changes a repository holds its lock, and who has the lock is not waited for without end."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec, WorktreeError, changes, journal, repo_lock
from bullpen.worktrees.journal import Making, NewWorktree
from bullpen.worktrees.recover import delete_branch
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow  # a repository for each


@pytest.fixture
def busy(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site with amy, whose repository somebody else has locked."""
    worktrees.create(site, Spec("amy", role="coder"))
    git(site.repo.root or tmp_path, "branch", "swarm/old")
    monkeypatch.setattr(repo_lock, "WAIT_SECONDS", 0.0)
    descriptor = os.open(site.repo.own_dir / "lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield site
    os.close(descriptor)


def persona(site: Site) -> Path:
    file = site.base.parent / "persona.md"
    file.write_text("You are.")
    return file


CHANGING: dict[str, Callable[[Site], object]] = {
    "create": lambda site: worktrees.create(site, Spec("bob")),
    "ensure": lambda site: worktrees.ensure(site, Spec("amy")),
    "remove": lambda site: worktrees.remove(site, "amy"),
    "remove_by_force": lambda site: worktrees.remove(site, "amy", force=True),
    "prune": worktrees.prune,
    "gc": worktrees.gc,
    "lock": lambda site: worktrees.lock(site, "amy"),
    "unlock": lambda site: worktrees.unlock(site, "amy"),
    "cleanup_branches": worktrees.cleanup_branches,
    "update_persona": lambda site: worktrees.update_persona(site, "coder", persona(site)),
}


def everything(site: Site) -> set[str]:
    """What is there, without what git itself writes when it is asked."""
    places = (site.base, site.repo.common_dir / "worktrees", site.repo.common_dir / "refs")
    return {str(path) for place in places for path in place.rglob("*")}


@pytest.mark.parametrize("name", CHANGING)
def test_w13_nothing_changes_while_somebody_else_has_the_lock(name: str, busy: Site) -> None:
    before = everything(busy)
    with pytest.raises(WorktreeError) as raised:
        CHANGING[name](busy)
    assert raised.value.code.value == "LOCKED"
    assert "has held the lock" in raised.value.message
    assert everything(busy) == before


def test_w13_looking_waits_for_nobody(busy: Site) -> None:
    assert [entry.name for entry in worktrees.list_managed(busy)] == ["amy"]
    assert worktrees.info(busy, "amy").name == "amy"
    assert worktrees.lock_reason(busy, "amy") is None
    assert worktrees.reason_to_keep(busy, "amy") == ""


def test_w13_the_lock_is_free_after_a_failure(site: Site) -> None:
    with pytest.raises(RuntimeError, match="in it"), repo_lock.locked(site.repo):
        raise RuntimeError("in it")
    with repo_lock.locked(site.repo) as lock:
        other = os.open(site.repo.own_dir / "lock", os.O_RDWR)
        try:
            assert not repo_lock.take(other, 0)
        finally:
            os.close(other)
        assert lock.fd >= 0


def test_w13_of_two_who_lock_a_worktree_the_second_is_told(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", "mine\n  now")
    assert worktrees.lock_reason(site, "amy") == "mine now"
    with pytest.raises(WorktreeError, match="locked already: mine now"):
        worktrees.lock(site, "amy")


def test_w15_one_who_fills_the_pool_is_enough(repo: Path, tmp_path: Path) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", pool=1)
    site.repo.own_dir.mkdir()
    turn = os.open(site.repo.own_dir / "fill", os.O_RDWR | os.O_CREAT)
    fcntl.flock(turn, fcntl.LOCK_EX)
    assert worktrees.fill_pool(site) == 0
    os.close(turn)
    assert worktrees.fill_pool(site) == 1
    assert len(worktrees.list_ready(site)) == 1


def test_w7_a_removal_that_could_not_begin_leaves_no_intent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    worktrees.create(site, Spec("amy"))

    def refused(_path: Path, _entry: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr("bullpen.worktrees.trash.throw", refused)
    with pytest.raises(WorktreeError):
        worktrees.remove(site, "amy")
    assert list((site.repo.own_dir / "journal").iterdir()) == []
    assert worktrees.list_managed(site)[0].name == "amy"


def test_w4_what_is_kept_of_worktrees_is_the_persons_alone_to_read(tmp_path: Path) -> None:
    site = worktrees.open_site(make_repo(tmp_path / "of-tess"), tmp_path / "base")
    worktrees.create(site, Spec("amy", setup="true"))
    worktrees.remove(site, "amy")
    worktrees.create(site, Spec("bob"))
    modes = {
        path.relative_to(site.base).parts[0]: path.stat().st_mode & 0o077
        for path in (site.records, site.records / "bob.json", site.making, site.trash)
        if path.exists()
    }
    assert modes.keys() >= {".records", ".making", ".trash"}
    assert set(modes.values()) == {0}
    assert (site.records / "bob.json").stat().st_mode & 0o077 == 0


def test_w7_a_branch_that_moved_since_is_left_alone(site: Site, repo: Path) -> None:
    old = git(repo, "rev-parse", "main")
    git(repo, "branch", "topic")
    git(repo, "config", "branch.topic.remote", "origin")
    git(repo, "update-ref", "refs/heads/topic", commit(repo, "newer.txt"))
    with repo_lock.locked(site.repo) as lock:
        assert not delete_branch(site.repo, "topic", old, lock)
        assert not delete_branch(site.repo, "gone", old, lock)
        assert worktrees.branch_exists(site.repo, "topic")
        assert git(repo, "config", "branch.topic.remote") == "origin"
        assert delete_branch(site.repo, "topic", git(repo, "rev-parse", "main"), lock)
    assert not worktrees.branch_exists(site.repo, "topic")
    assert git(repo, "config", "branch.topic.remote", check=False) == ""


def test_w8_what_is_being_made_is_not_listed_and_nobody_else_makes_it(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    member = NewWorktree(id="amy.1", name="amy", path=str(path), branch="amy", commit="0" * 40)
    with repo_lock.locked(site.repo) as lock:
        held = journal.announced(site.repo, Making(str(site.base), (member,)), lock)
        entry = held.__enter__()
    try:
        assert worktrees.list_managed(site) == []
        with pytest.raises(WorktreeError, match="is being made by another process"):
            worktrees.ensure(site, Spec("amy"))
    finally:
        journal.withdraw(entry)
        held.__exit__(None, None, None)
    assert [listed.name for listed in worktrees.list_managed(site)] == ["amy"]


def test_x5_a_link_in_place_of_the_git_file_is_not_followed(site: Site, tmp_path: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    (path / ".git").rename(tmp_path / "moved")
    (path / ".git").symlink_to(tmp_path / "moved")
    with pytest.raises(WorktreeError) as raised:
        worktrees.uncommitted_files(site, "amy")
    assert raised.value.code.value == "WORKTREE_CORRUPT"


def test_w7_a_branch_that_another_uses_by_now_is_not_taken_back(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    git(path, "checkout", "-q", "-b", "topic")
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    git(repo, "checkout", "-q", "topic")
    worktrees.restore(site, "amy")
    assert worktrees.info(site, "amy").branch == ""
    assert git(repo, "symbolic-ref", "--short", "HEAD") == "topic"


def test_w10_looking_at_a_file_that_was_touched_writes_no_index(site: Site) -> None:
    path = worktrees.create(site, Spec("amy"))
    (index,) = (site.repo.admin_dir).glob("*/index")
    os.utime(path / "file0.txt", (1000, 1000))  # git would note that it is as it was
    before = index.read_bytes()
    assert worktrees.info(site, "amy").changes == ()
    assert index.read_bytes() == before


def test_t10_commits_since_are_told_oldest_first(repo: Path) -> None:
    looked = changes.verify_checkout(repo)
    assert looked
    base = changes.head_of(looked)
    for name in ("one", "two", "three"):
        commit(repo, name, message=f"Add {name}")
    commits = changes.changes_since(looked, base).commits
    subjects = [line.partition(" ")[2] for line in commits.subjects]
    assert subjects == ["Add one", "Add two", "Add three"]

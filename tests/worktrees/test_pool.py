"""The warm pool: handed out as good as new, or not at all."""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from tests.waiting import wait_until
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]


@pytest.fixture
def pooled(repo: Path, tmp_path: Path) -> Site:
    site = worktrees.open_site(repo, tmp_path / "base", pool=2)
    assert worktrees.fill_pool(site) == 2
    return site


def contents(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file.relative_to(path)): (
            (0, os.fsencode(file.readlink()))
            if file.is_symlink()
            else (file.stat().st_mode & 0o111, file.read_bytes())
        )
        for file in path.rglob("*")
        if file.is_symlink() or (file.is_file() and file.name != ".git")
    }


def assert_as_new(site: Site, name: str, commit_id: str) -> None:
    """Exactly what a plain checkout of that commit gives, to git and to the eye."""
    path = site.base / name
    fresh = site.base.parent / f"fresh {name}"
    git(path, "worktree", "add", "-q", "--detach", str(fresh), commit_id)
    assert contents(path) == contents(fresh)
    git(path, "worktree", "remove", "--force", str(fresh))
    assert git(path, "rev-parse", "HEAD") == commit_id
    assert git(path, "status", "--porcelain", "--ignored") == ""
    assert git(path, "diff-index", "--cached", "HEAD") == ""
    commit(path, f"work of {name}.txt")
    assert worktrees.info(site, name).ahead >= 1
    assert_healthy(site)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_w15_pool_is_filled_to_its_size(pooled: Site) -> None:
    assert len(worktrees.list_ready(pooled)) == 2
    assert worktrees.fill_pool(pooled) == 0
    assert refs(pooled) == {"main"}
    assert_healthy(pooled)


def test_w15_handed_out_at_the_same_commit(pooled: Site, repo: Path) -> None:
    ready = {inode(entry.path / "file0.txt") for entry in worktrees.list_ready(pooled)}
    path = worktrees.create(pooled, Spec("amy", role="coder"))
    assert inode(path / "file0.txt") in ready
    assert len(worktrees.list_ready(pooled)) == 1
    info = worktrees.info(pooled, "amy")
    assert (info.branch, info.base, info.role, info.locked) == ("amy", "main", "coder", None)
    assert_as_new(pooled, "amy", git(repo, "rev-parse", "main"))


def shuffle(repo: Path) -> str:
    """A commit that adds, deletes, renames, changes kinds, modes and ignores."""
    git(repo, "rm", "-q", "file0.txt")
    git(repo, "mv", "file1.txt", "renamed.txt")
    (repo / "file2.txt").unlink()
    (repo / "file2.txt").mkdir()
    (repo / "file2.txt" / "now a directory").write_text("x\n")
    (repo / "tool").write_text("#!/bin/sh\n")
    (repo / "tool").chmod(0o755)
    (repo / "link").symlink_to("tool")
    (repo / "dir" / "deep").mkdir(parents=True)
    (repo / "dir" / "deep" / "file").write_text("x\n")
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Shuffle")
    return git(repo, "rev-parse", "HEAD")


def test_w15_handed_out_at_a_newer_commit(pooled: Site, repo: Path) -> None:
    new = shuffle(repo)
    worktrees.create(pooled, Spec("amy"))
    assert len(worktrees.list_ready(pooled)) == 1
    assert_as_new(pooled, "amy", new)


def test_w15_handed_out_at_an_older_commit(repo: Path, tmp_path: Path) -> None:
    old = git(repo, "rev-parse", "HEAD")
    shuffle(repo)
    site = worktrees.open_site(repo, tmp_path / "base", pool=1)
    worktrees.fill_pool(site)
    worktrees.create(site, Spec("amy", base=old))
    assert worktrees.list_ready(site) == []
    assert_as_new(site, "amy", old)
    assert not (site.base / "amy" / "dir").exists()


def test_w15_handed_out_at_an_unrelated_commit(pooled: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "--orphan", "pages")
    git(repo, "rm", "-rqf", ".")
    tip = commit(repo, "index.html")
    git(repo, "checkout", "-q", "main")
    worktrees.create(pooled, Spec("amy", base="pages"))
    assert_as_new(pooled, "amy", tip)


def test_w15_handed_out_detached(pooled: Site, repo: Path) -> None:
    new = shuffle(repo)
    path = worktrees.create(pooled, Spec("amy", detached=True))
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert refs(pooled) == {"main"}
    assert_as_new(pooled, "amy", new)


def test_w15_more_wanted_than_ready(pooled: Site, repo: Path) -> None:
    ready = {inode(entry.path / "file0.txt") for entry in worktrees.list_ready(pooled)}
    made = worktrees.create_many(pooled, [Spec(name) for name in ("amy", "bob", "cat", "dan")])
    taken = {inode(path / "file0.txt") for path in made.values()}
    assert len(ready & taken) == 2
    assert worktrees.list_ready(pooled) == []
    for name in made:
        assert git(made[name], "status", "--porcelain") == ""
        assert git(made[name], "symbolic-ref", "HEAD") == f"refs/heads/{name}"
    assert_healthy(pooled)


def test_w15_setup_copy_and_persona_run_after_hand_out(
    pooled: Site, repo: Path, tmp_path: Path
) -> None:
    (repo / ".env").write_text("secret")
    (tmp_path / "CLAUDE.md").write_text("p")
    spec = Spec("amy", copy=(".env",), persona=tmp_path / "CLAUDE.md", setup="pwd -P > where")
    path = worktrees.create(pooled, spec)
    assert (path / ".env").read_text() == "secret"
    assert (path / "CLAUDE.local.md").read_text() == "p"
    assert (path / "where").read_text() == f"{path}\n"


def test_w15_failed_hand_out_leaves_nothing(pooled: Site, failing: Failing) -> None:
    failing("SETUP_FAILED", worktrees.create, pooled, Spec("amy", setup="false"))
    assert refs(pooled) == {"main"} and not worktrees.exists(pooled, "amy")
    worktrees.fill_pool(pooled)
    assert len(worktrees.list_ready(pooled)) == 2
    assert_healthy(pooled)
    path = worktrees.create(pooled, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""


def test_w15_removed_like_any_other(pooled: Site) -> None:
    path = worktrees.create(pooled, Spec("amy"))
    (path / "new").write_text("x")
    worktrees.remove(pooled, "amy", force=True)
    worktrees.restore(pooled, "amy")
    assert (path / "new").read_text() == "x"
    assert worktrees.list_ready(pooled) == []  # the second went to the restored one
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/amy"


def test_w15_refilled_in_the_background(pooled: Site) -> None:
    worktrees.create_many(pooled, [Spec("amy"), Spec("bob")])
    worktrees.refill_in_background(pooled)
    wait_until(lambda: len(worktrees.list_ready(pooled)) == 2)
    wait_until(lambda: not list((pooled.repo.own_dir / "journal").glob("*")))
    assert_healthy(pooled)


def test_w15_refill_from_an_odd_place(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / os.fsdecode(b"caf\xe9 'q\" new\nline"))
    site = worktrees.open_site(repo, tmp_path / os.fsdecode(b"b\xe4se"), pool=1)
    worktrees.refill_in_background(site, "main")
    wait_until(lambda: len(worktrees.list_ready(site)) == 1)
    wait_until(lambda: not list((site.repo.own_dir / "journal").glob("*")))
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "damage",
    [
        "no git file",
        "git file elsewhere",
        "admin gone",
        "admin of another place",
        "unlocked",
        "not locked by us",
        "on branch",
        "stray directory",
        "stray file",
        "empty",
    ],
)
def test_w15_broken_entries_are_ignored(pooled: Site, repo: Path, damage: str) -> None:
    first, second = worktrees.list_ready(pooled)
    admin = pooled.repo.admin_dir / first.id
    match damage:
        case "no git file":
            (first.path / ".git").unlink()
        case "git file elsewhere":
            shutil.copyfile(second.path / ".git", first.path / ".git")
        case "admin gone":
            shutil.rmtree(admin)
        case "admin of another place":
            (admin / "gitdir").write_text(f"{pooled.base / 'elsewhere' / '.git'}\n")
        case "unlocked":
            git(repo, "worktree", "unlock", str(first.path))
        case "not locked by us":
            (admin / "locked").write_text("somebody\n")
        case "on branch":
            git(first.path, "checkout", "-q", "-b", "somebody")
        case "stray directory":
            shutil.rmtree(first.path)
            (pooled.pool_dir / "stray").mkdir()
        case "stray file":
            shutil.rmtree(first.path)
            (pooled.pool_dir / "pool.file").write_text("x")
        case "empty":
            shutil.rmtree(first.path)
            first.path.mkdir()
    assert worktrees.list_ready(pooled) == [second]
    made = worktrees.create_many(pooled, [Spec("amy"), Spec("bob")])
    for path in made.values():
        assert git(path, "status", "--porcelain") == ""
        assert (path / "file0.txt").read_text() == "file 0\n"
    assert worktrees.list_ready(pooled) == []
    assert worktrees.fill_pool(pooled) == 2


def test_w15_pool_of_one_repository_is_never_given_to_another(pooled: Site, tmp_path: Path) -> None:
    other_repo = make_repo(tmp_path / "other", files=1)
    other = worktrees.open_site(other_repo, pooled.base, pool=1)
    assert worktrees.list_ready(other) == []
    path = worktrees.create(other, Spec("amy"))
    assert sorted(p.name for p in path.iterdir()) == [".git", "file0.txt"]
    assert len(worktrees.list_ready(pooled)) == 2
    worktrees.fill_pool(other)
    assert len(worktrees.list_ready(pooled)) == 2 and len(worktrees.list_ready(other)) == 1


def test_w15_no_pool_no_refill(site: Site) -> None:
    assert worktrees.fill_pool(site) == 0
    worktrees.refill_in_background(site)
    assert not site.pool_dir.exists()


def test_w15_pool_from_a_ref_that_is_not_there(
    repo: Path, tmp_path: Path, failing: Failing
) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", pool=1)
    failing("REF_NOT_FOUND", worktrees.fill_pool, site, "nothing")
    assert worktrees.list_ready(site) == []


def test_w15_entries_survive_git_prune_and_gc(pooled: Site, repo: Path) -> None:
    git(repo, "worktree", "prune", "--expire=now")
    worktrees.prune(pooled)
    worktrees.gc(pooled)
    assert len(worktrees.list_ready(pooled)) == 2


def test_w15_pool_with_submodules_that_recurse(repo: Path, tmp_path: Path) -> None:
    library = make_repo(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    git(repo, *allow, "submodule", "add", "-q", str(library), "lib")
    git(repo, "commit", "-qm", "Add lib")
    git(repo, "config", "submodule.recurse", "true")
    site = worktrees.open_site(repo, tmp_path / "base", pool=1)
    worktrees.fill_pool(site)
    newer = commit(library, "newer.txt")
    git(repo / "lib", "fetch", "-q")
    git(repo / "lib", "checkout", "-q", newer)
    git(repo, "commit", "-qam", "Newer lib")
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""
    (path / "new").write_text("x")
    worktrees.remove(site, "amy", force=True)
    worktrees.restore(site, "amy")
    assert git(path, "status", "--porcelain") == "?? new"


@pytest.mark.parametrize("damage", ["changed", "added", "torn"])
def test_w15_filling_throws_out_what_somebody_wrote_into(
    pooled: Site, repo: Path, damage: str
) -> None:
    (victim, *others) = worktrees.list_ready(pooled)
    if damage == "changed":
        (victim.path / "file0.txt").write_text("changed\n")
    elif damage == "added":
        (victim.path / "junk.txt").write_text("junk\n")
    else:
        (pooled.repo.admin_dir / victim.id / "index").write_bytes(b"torn")
    assert worktrees.fill_pool(pooled) == 1
    ready = worktrees.list_ready(pooled)
    assert victim not in ready
    assert len(ready) == pooled.pool
    assert set(others) < set(ready)
    (held,) = [path for path in pooled.trash.iterdir() if victim.id in path.name]
    assert not held.name.startswith("0."), "kept for whoever wrote there"


def test_w15_two_at_once_do_not_overfill(repo: Path, tmp_path: Path) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", pool=2)
    barrier = threading.Barrier(4)

    def fill(_number: int) -> int:
        barrier.wait()
        return worktrees.fill_pool(site)

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(fill, range(4)))
    assert sum(made) == 2
    assert len(worktrees.list_ready(site)) == 2

"""Making worktrees: all that was asked for, or no trace of it."""

import multiprocessing
import os
import resource
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen import worktrees
from bullpen.worktrees import Code, Site, Spec, WorktreeError, prepare
from bullpen.worktrees.errors import KINDS
from bullpen.worktrees.repo_lock import locked
from tests.waiting import wait_until
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]


def everything(site: Site) -> dict[str, object]:
    """All that a failed creation could have left."""
    return {
        "refs": refs(site, "refs"),
        "listed": worktrees.list_all(site),
        "base": sorted(p.name for p in site.base.glob("[!.]*")),
        "records": sorted(p.name for p in site.records.glob("*.json")),
        "admin": sorted(p.name for p in site.repo.admin_dir.glob("*")),
        "config": (site.repo.common_dir / "config").read_bytes(),
    }


# ── W1: errors ───────────────────────────────────────────────────────────────


def test_w1_every_code_has_a_kind_and_reaches_json() -> None:
    specified = "NOT_A_REPO WORKTREE_EXISTS WORKTREE_NOT_FOUND WORKTREE_CORRUPT BRANCH_EXISTS"
    specified += " REF_NOT_FOUND ROLE_NOT_FOUND DIRTY LOCKED DEPTH_EXCEEDED SETUP_FAILED"
    specified += " GIT_FAILED CLEANUP_FAILED"
    assert set(specified.split()) <= {code.value for code in Code}
    assert set(KINDS) == set(Code)
    error = WorktreeError(Code.DIRTY, "amy is dirty", hint="commit", details={"files": ["x"]})
    assert error.to_json() == {
        "error": "conflict",
        "code": "DIRTY",
        "message": "amy is dirty",
        "hint": "commit",
        "details": {"files": ["x"]},
    }


def test_w1_gits_own_words_are_in_the_details(site: Site, repo: Path, failing: Failing) -> None:
    commit(repo, "big.txt")
    blob = git(repo, "rev-parse", "HEAD:big.txt")
    lost = repo / ".git" / "objects" / blob[:2] / blob[2:]
    lost.unlink()
    error = failing("GIT_FAILED", worktrees.create, site, Spec("amy"))
    assert blob in str(error.details["git"])
    assert refs(site) == {"main"} and not worktrees.exists(site, "amy")
    assert len(worktrees.list_all(site)) == 1


# ── W4: one ──────────────────────────────────────────────────────────────────


def test_w4_create(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    assert path == site.base / "amy" and path.is_absolute()
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/amy"
    assert git(path, "rev-parse", "HEAD") == git(repo, "rev-parse", "main")
    assert git(path, "status", "--porcelain") == ""
    assert sorted(p.name for p in path.iterdir()) == [
        *(".git", "file0.txt", "file1.txt", "file2.txt")
    ]
    assert git(repo, "status", "--porcelain") == ""
    assert_healthy(site)


def test_w4_a_person_can_work_in_it(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "mine.txt")
    git(path, "mv", "file0.txt", "renamed.txt")
    git(path, "commit", "-qam", "Rename")
    git(path, "stash", "list")
    git(path, "checkout", "-q", "-b", "other")
    git(path, "checkout", "-q", "amy")
    git(path, "rebase", "-q", "main")
    git(repo, "merge", "-q", "amy")
    assert git(repo, "log", "--oneline", "main").count("\n") == 2
    assert "amy@{" in git(path, "reflog", "amy")
    git(path, "gc", "-q")
    git(repo, "worktree", "move", str(path), str(path.with_name("moved")))
    assert worktrees.info(site, "moved").branch == "amy"
    git(repo, "worktree", "remove", "moved")
    assert_healthy(site)


def test_w4_detached(site: Site) -> None:
    path = worktrees.create(site, Spec("amy", detached=True))
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w4_modes_links_and_odd_names_come_along(site: Site, repo: Path) -> None:
    (repo / "tool").write_text("#!/bin/sh\n")
    (repo / "tool").chmod(0o755)
    (repo / "link").symlink_to("tool")
    (repo / "sp ace\nnew line").write_text("x")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Odd")
    path = worktrees.create(site, Spec("amy"))
    assert (path / "tool").stat().st_mode & stat.S_IXUSR
    assert (path / "link").readlink() == Path("tool")
    assert (path / "sp ace\nnew line").read_text() == "x"
    assert git(path, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/etc", ".hidden", "-x", "a b", "a\nb", "a\0b", "Amy"),
        *("x" * 64, "a..b", "a.", "x.lock", "root", "all", "~", "a~b", "é"),
    ],
)
def test_w4_name_that_is_refused_touches_nothing(site: Site, failing: Failing, name: str) -> None:
    before = everything(site)
    for spec in (Spec(name), Spec(name, detached=True), Spec(name, branch="fine")):
        if name in {"a..b", "x.lock"} and spec.branch:
            continue
        failing("INVALID", worktrees.create, site, spec)
    assert everything(site) == before and not site.base.exists()


@pytest.mark.parametrize("branch", ["-x", "a b", "x..y", "x.lock", "HEAD", "@", "a\0b", "x~1"])
def test_w4_branch_that_git_would_refuse(site: Site, failing: Failing, branch: str) -> None:
    failing("INVALID", worktrees.create, site, Spec("amy", branch=branch))
    assert not site.base.exists()


def test_w4_existing_branch(site: Site, repo: Path, failing: Failing) -> None:
    git(repo, "branch", "amy")
    before = everything(site)
    failing("BRANCH_EXISTS", worktrees.create, site, Spec("amy"))
    failing("BRANCH_EXISTS", worktrees.create, site, Spec("bob", branch="main"))
    assert everything(site) == before


@pytest.mark.parametrize(("there", "wanted"), [("a", "a/b"), ("a/b", "a"), ("amy/x/y", "amy/x")])
def test_w4_branch_in_the_way_of_another(
    site: Site, repo: Path, failing: Failing, there: str, wanted: str
) -> None:
    git(repo, "branch", there)
    before = everything(site)
    error = failing("BRANCH_EXISTS", worktrees.create, site, Spec("new", branch=wanted))
    assert there in error.message
    assert everything(site) == before
    assert_healthy(site)


@pytest.mark.parametrize("kind", ["worktree", "file", "directory", "dangling link"])
def test_w4_existing_path(site: Site, failing: Failing, kind: str) -> None:
    path = site.base / "amy"
    site.base.mkdir()
    match kind:
        case "worktree":
            worktrees.create(site, Spec("amy"))
        case "file":
            path.write_text("x")
        case "directory":
            path.mkdir()
        case "dangling link":
            path.symlink_to("nowhere")
    before = everything(site)
    failing("WORKTREE_EXISTS", worktrees.create, site, Spec("amy", branch="other"))
    assert everything(site) == before


def test_w4_an_empty_directory_that_came_meanwhile_is_not_replaced(
    site: Site, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rename(2) would put the worktree in its place without a word."""
    copy = prepare.copy_untracked

    def copy_slowly(*args: Any) -> None:
        (site.base / "amy").mkdir()
        copy(*args)

    before = everything(site)
    monkeypatch.setattr(prepare, "copy_untracked", copy_slowly)
    failing("WORKTREE_EXISTS", worktrees.create, site, Spec("amy"))
    assert list((site.base / "amy").iterdir()) == []
    (site.base / "amy").rmdir()
    assert everything(site) == before
    assert_healthy(site)


def test_w4_persona_that_is_missing(site: Site, tmp_path: Path, failing: Failing) -> None:
    before = everything(site)
    failing("ROLE_NOT_FOUND", worktrees.create, site, Spec("amy", persona=tmp_path / "none"))
    assert everything(site) == before and not site.base.exists()
    worktrees.create(site, Spec("amy", role="coder", persona=None))


def test_w4_setup_that_fails_leaves_nothing(site: Site, failing: Failing) -> None:
    before = everything(site)
    spec = Spec("amy", setup="echo made > made; git add made; git commit -qm x; exit 3")
    failing("SETUP_FAILED", worktrees.create, site, spec)
    after = everything(site)
    # The set-up committed on the new branch: that is work, and not ours to throw away.
    after["refs"] = after["refs"] - {"amy"}  # type: ignore[operator]
    assert after == before
    assert_healthy(site)


def test_w4_setup_that_only_fails_leaves_not_even_the_branch(site: Site, failing: Failing) -> None:
    before = everything(site)
    failing("SETUP_FAILED", worktrees.create, site, Spec("amy", setup="false"))
    assert everything(site) == before
    assert_healthy(site)
    wait_until(lambda: not list(site.trash.iterdir()))
    worktrees.create(site, Spec("amy"))


def test_w4_failure_puts_an_older_lifes_record_back(
    site: Site, repo: Path, failing: Failing
) -> None:
    path = worktrees.create(site, Spec("amy", role="coder"))
    tip = commit(path, "one.txt")
    worktrees.remove(site, "amy")  # its branch is kept, and so is whose it is
    failing("SETUP_FAILED", worktrees.create, site, Spec("amy", branch="two", setup="false"))
    worktrees.ensure(site, Spec("amy"))
    assert git(path, "rev-parse", "HEAD") == tip
    assert worktrees.info(site, "amy").role == "coder"


def _create_on_a_small_disk(repo: Path, base: Path, report: "multiprocessing.Queue[str]") -> None:
    # Signals are reset by our own child processes; Python itself gets EFBIG.
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    try:
        worktrees.create_many(worktrees.open_site(repo, base), [Spec("amy"), Spec("bob")])
        report.put("made")
    except WorktreeError as error:
        report.put(error.code.value)


def test_w4_full_disk_leaves_nothing(site: Site, repo: Path) -> None:
    commit(repo, "big.bin", "0123456789abcdef" * 10000)
    before = everything(site)
    context = multiprocessing.get_context("fork")
    report: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=_create_on_a_small_disk, args=(repo, site.base, report))
    child.start()
    assert report.get(timeout=60) == "GIT_FAILED"
    child.join(60)
    assert everything(site) == before
    assert_healthy(site)
    assert len(worktrees.create_many(site, [Spec("amy"), Spec("bob")])) == 2


def test_w4_index_lock_left_by_a_crash_in_the_main_tree_does_not_matter(
    site: Site, repo: Path
) -> None:
    (repo / ".git" / "index.lock").write_text("")
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""
    worktrees.remove(site, "amy")


def test_w4_base_on_a_path_through_a_link(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    site = worktrees.open_site(repo, tmp_path / "link" / "base")
    path = worktrees.create(site, Spec("amy"))
    assert path == tmp_path / "real" / "base" / "amy"
    assert worktrees.info(site, "amy").branch == "amy"
    worktrees.remove(site, "amy")
    assert_healthy(site)


def test_w4_files_deleted_by_hand_make_room(site: Site, repo: Path) -> None:
    shutil.rmtree(worktrees.create(site, Spec("amy")))
    git(repo, "branch", "-D", "amy", check=False)
    git(repo, "update-ref", "-d", "refs/heads/amy")
    path = worktrees.create(site, Spec("amy"))
    assert git(path, "status", "--porcelain") == ""
    assert_healthy(site)


def test_w4_deleted_files_of_a_locked_worktree_are_told(site: Site, failing: Failing) -> None:
    path = worktrees.create(site, Spec("amy"))
    worktrees.lock(site, "amy", "on a disk that is not mounted")
    shutil.rmtree(path)
    failing("LOCKED", worktrees.create, site, Spec("amy", branch="other"))
    assert [entry.locked for entry in worktrees.list_all(site)] == [
        *(None, "on a disk that is not mounted")
    ]


# ── W6: many ─────────────────────────────────────────────────────────────────


def test_w6_create_many(site: Site) -> None:
    names = [f"agent-{number}" for number in range(12)]
    made = worktrees.create_many(site, [Spec(name) for name in names])
    assert made == {name: site.base / name for name in names}
    for name in names:
        assert git(made[name], "status", "--porcelain") == ""
        assert git(made[name], "symbolic-ref", "HEAD") == f"refs/heads/{name}"
    assert_healthy(site)


def test_w6_nothing_asked_nothing_made(site: Site) -> None:
    before = everything(site)
    assert worktrees.create_many(site, []) == {}
    assert everything(site) == before


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (Spec("cat", setup="false"), "SETUP_FAILED"),
        (Spec("cat", branch="main"), "BRANCH_EXISTS"),
        (Spec("cat", branch="amy/x"), "BRANCH_EXISTS"),
        (Spec("cat", base="nothing"), "REF_NOT_FOUND"),
        (Spec("cat", depth=3), "DEPTH_EXCEEDED"),
        (Spec("cat", persona=Path("/nothing")), "ROLE_NOT_FOUND"),
        (Spec("cat", copy=("../x",)), "INVALID"),
        (Spec("amy", branch="x"), "INVALID"),
        (Spec("cat", branch="amy"), "INVALID"),
    ],
)
def test_w6_all_or_none(site: Site, failing: Failing, bad: Spec, code: str) -> None:
    before = everything(site)
    failing(code, worktrees.create_many, site, [Spec("amy"), bad, Spec("bob", setup="true")])
    assert everything(site) == before
    assert_healthy(site)


# ── W12: place and depth ─────────────────────────────────────────────────────


def test_w12_subtrees_lie_flat_under_their_branchs_name(site: Site) -> None:
    parent = worktrees.create(site, Spec("lead"))
    branch = worktrees.subtree_branch("lead", "feature-a")
    child = worktrees.create(site, Spec(branch, branch=branch, parent="lead", depth=1))
    assert child == site.base / "lead.feature-a"
    deep = worktrees.create(
        site, Spec("swarm~x-1.part", branch="swarm/x-1.part", parent="lead", depth=2)
    )
    assert deep == site.base / "swarm~x-1.part"
    assert git(deep, "symbolic-ref", "HEAD") == "refs/heads/swarm/x-1.part"
    worktrees.remove(site, "lead")
    assert not parent.exists() and git(child, "status", "--porcelain") == ""
    assert worktrees.info(site, "lead.feature-a").parent == "lead"
    assert_healthy(site)


def test_w12_parent_is_never_guessed_from_the_name(site: Site) -> None:
    worktrees.create(site, Spec("release-1"))
    worktrees.create(site, Spec("release-1.2"))
    info = worktrees.info(site, "release-1.2")
    assert (info.parent, info.depth) == ("", 0)


@pytest.mark.parametrize(
    ("depth", "limit", "allowed"), [(2, 2, True), (3, 2, False), (1, 0, False)]
)
def test_w12_depth(
    repo: Path, tmp_path: Path, failing: Failing, depth: int, limit: int, allowed: bool
) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", max_depth=limit)
    if allowed:
        worktrees.create(site, Spec("amy", depth=depth))
        assert worktrees.info(site, "amy").depth == depth
    else:
        error = failing("DEPTH_EXCEEDED", worktrees.create, site, Spec("amy", depth=depth))
        assert "max_depth" in error.hint
        assert not site.base.exists() and refs(site) == {"main"}


# ── W13: side by side ────────────────────────────────────────────────────────


def _race(work: Callable[[], object], count: int) -> list[str]:
    barrier, outcomes = threading.Barrier(count), []

    def run() -> None:
        barrier.wait(60)
        try:
            work()
            outcomes.append("made")
        except WorktreeError as error:
            outcomes.append(error.code.value)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sorted(outcomes)


def test_w13_of_two_creators_of_a_name_one_is_told_that_it_exists(site: Site) -> None:
    outcomes = _race(lambda: worktrees.create(site, Spec("amy")), 5)
    assert outcomes.count("made") == 1
    # The loser sees the worktree, the making of it, or already the branch.
    assert set(outcomes) <= {"made", "WORKTREE_EXISTS", "BRANCH_EXISTS"}
    assert git(site.base / "amy", "status", "--porcelain") == ""
    assert_healthy(site)


def test_w13_second_creator_while_the_first_is_still_at_it(
    site: Site, tmp_path: Path, failing: Failing
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = threading.Thread(
        target=worktrees.create, args=(site, Spec("amy", setup=f"read line < '{gate}'"))
    )
    first.start()
    wait_until((site.base / "amy").exists)
    failing("WORKTREE_EXISTS", worktrees.create, site, Spec("amy"))
    failing("WORKTREE_EXISTS", worktrees.ensure, site, Spec("amy"))
    assert worktrees.list_managed(site) == []
    worktrees.create(site, Spec("bob"))  # others are not kept waiting
    gate.write_text("go\n")
    first.join(60)
    assert {entry.name for entry in worktrees.list_managed(site)} == {"amy", "bob"}
    assert_healthy(site)


def test_w13_many_creators_and_removers_at_once(site: Site) -> None:
    def live(number: int) -> None:
        name = f"agent-{number}"
        path = worktrees.create(site, Spec(name))
        assert git(path, "status", "--porcelain") == ""
        worktrees.remove(site, name)

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(live, range(8)))
    assert refs(site) == {"main"}
    assert_healthy(site)


def test_w13_the_lock_is_of_the_repository_not_of_the_home(
    site: Site, repo: Path, tmp_path: Path
) -> None:
    other = worktrees.open_site(repo, tmp_path / "other base")
    done = threading.Event()

    def create() -> None:
        worktrees.create(other, Spec("bob"))
        done.set()

    with locked(site.repo):
        thread = threading.Thread(target=create)
        thread.start()
        assert not done.wait(0.3)
    thread.join(60)
    assert done.is_set()


def test_w13_one_base_serves_two_repositories(site: Site, tmp_path: Path, failing: Failing) -> None:
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    worktrees.create(site, Spec("amy"))
    worktrees.create(other, Spec("bob"))
    failing("WORKTREE_EXISTS", worktrees.create, other, Spec("amy"))
    assert [entry.name for entry in worktrees.list_managed(site)] == ["amy"]
    assert [entry.name for entry in worktrees.list_managed(other)] == ["bob"]
    assert worktrees.remove_all(other) == 1
    assert_healthy(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_w4_a_full_disk_undoes_everything_and_is_named(tmp_path: Path, failing: Failing) -> None:
    repo = make_repo(tmp_path / "big", files=1)
    commit(repo, "big.txt", os.urandom(1 << 20).hex())
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no mounting here")
    try:
        site = worktrees.open_site(repo, disk / "base")
        error = failing("GIT_FAILED", worktrees.create_many, site, [Spec("amy"), Spec("bob")])
        assert "is full" in error.hint
        assert refs(site) == {"main"}
        assert worktrees.list_managed(site) == []
        assert_healthy(site)
        wait_until(lambda: not list(site.trash.iterdir()))
    finally:
        subprocess.run(["umount", disk], check=True)

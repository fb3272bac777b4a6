"""Kill -9 at every step: afterwards the next call finds all of it or none of it.

Two ways to die. At every effect: a forked child counts its own audit events (every
file opened, renamed, removed, locked, every process started) and kills itself before
the n-th, for n = 1, 2, … until the operation survives. Around every git: a wrapper on
PATH kills its parent just before, or just after, the real git runs; before, it also holds
git up for a while, so that an orphaned git goes to work when the next caller has arrived.
"""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.journal import Removing
from bullpen.worktrees.recover import is_decided
from tests.waiting import wait_until
from tests.worktrees.killed import died_at_effect, died_once
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

MOST_STEPS = 1500
NAMES = ("amy", "bob", "cleo")


def fresh(tmp_path: Path, number: int, pool: int = 0) -> Site:
    """A repository of its own for each death; copying is quicker than `git init`."""
    template = tmp_path / "template"
    if not template.exists():
        make_repo(template)
        (template / ".env").write_text("SECRET=1\n")
        (tmp_path / "CLAUDE.md").write_text("You are Amy.\n")
    place = tmp_path / f"try{number}"
    shutil.copytree(template, place / "repo", symlinks=True)
    return worktrees.open_site(place / "repo", place / "base", pool=pool)


def specs(tmp_path: Path) -> list[Spec]:
    return [
        Spec(
            name,
            role="coder",
            persona=tmp_path / "CLAUDE.md",
            copy=(".env",),
            setup="echo ready > ready.log",
            ports=3,
        )
        for name in NAMES
    ]


def assert_all_or_none(site: Site, tmp_path: Path) -> None:
    """After the next call: three complete worktrees, or no trace of them."""
    there = {entry.name for entry in worktrees.list_managed(site)} - {"next"}
    assert there in (set(), set(NAMES)), there
    on_disk = {path.name for path in site.base.iterdir() if not path.name.startswith(".")}
    assert on_disk - {"next"} == there
    assert refs(site) - {"main", "next"} == there
    for name in there:
        path = site.base / name
        assert (path / "ready.log").read_text() == "ready\n"
        assert (path / ".env").read_text() == "SECRET=1\n"
        assert (path / "CLAUDE.local.md").read_text() == "You are Amy.\n"
        assert set(worktrees.uncommitted_files(site, name)) == {".env", "ready.log"}
        assert worktrees.info(site, name).locked is None
    ports = [port for name in there for port in worktrees.info(site, name).ports]
    assert len(ports) == len(set(ports)) == 3 * len(there)
    assert_healthy(site)


def finish(site: Site) -> None:
    """Some of it is being deleted already, by who empties the trash."""
    shutil.rmtree(site.base.parent, ignore_errors=True)


IN_STORM = [pytest.param(kind, marks=pytest.mark.storm) for kind in ("clean", "ahead")]


# With a pool most effects are the same.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "every"),
    [
        (0, 23),
        pytest.param(2, 41, marks=pytest.mark.storm),
        pytest.param(0, 1, marks=pytest.mark.storm),
        pytest.param(2, 3, marks=pytest.mark.storm),
    ],
)
def test_w6_create_many_killed_before_effects(tmp_path: Path, pool: int, every: int) -> None:
    deaths = 0
    for step in range(1, MOST_STEPS, every):
        site = fresh(tmp_path, step, pool)
        if pool:
            worktrees.fill_pool(site)
        died = died_at_effect(step, partial(worktrees.create_many, site, specs(tmp_path)))
        worktrees.create(site, Spec("next"))  # the next call on that repository
        assert_all_or_none(site, tmp_path)
        if not died:
            break
        deaths += 1
        # What was taken back can be made again; by the same code, so not every time.
        if (every > 20 or step % 5 == 1) and not (site.base / NAMES[0]).exists():
            worktrees.create_many(site, specs(tmp_path))
            assert_all_or_none(site, tmp_path)
        finish(site)
    else:
        raise AssertionError("never got through")
    assert deaths > 60 // every, "the crash must hit many different moments"


@pytest.mark.storm
@pytest.mark.parametrize("moment", ["before", "after"])
def test_w6_create_many_killed_around_every_git(
    tmp_path: Path, moment: str, deadly_git: Callable[..., bool]
) -> None:
    deaths = 0
    for step in range(1, MOST_STEPS):
        site = fresh(tmp_path, step)
        died = deadly_git(step, moment, partial(worktrees.create_many, site, specs(tmp_path)))
        worktrees.create(site, Spec("next"))
        wait_until(lambda: not died or (tmp_path / "git-ended").exists())  # noqa: B023
        assert_all_or_none(site, tmp_path)
        finish(site)
        if not died:
            break
        deaths += 1
    assert deaths >= 6


def prepared(tmp_path: Path, number: int, kind: str) -> Site:
    """A worktree `amy` to remove: clean and merged, clean and ahead, or dirty."""
    site = fresh(tmp_path, number)
    path = worktrees.create(site, Spec("amy"))
    if kind in {"ahead", "dirty"}:
        commit(path, "work.txt")
    if kind == "dirty":
        (path / "file0.txt").write_text("changed\n")
        (path / "new.txt").write_text("new\n")
    return site


def assert_removed_or_whole(site: Site, kind: str, head: str) -> None:
    """After the next call: all there as before, or gone with everything saved that was work."""
    path = site.base / "amy"
    if path.exists():
        assert worktrees.head(site, "amy") == head
        assert "amy" in refs(site)
        expected = {"file0.txt", "new.txt"} if kind == "dirty" else set()
        assert set(worktrees.uncommitted_files(site, "amy")) == expected
    else:
        assert [entry.name for entry in worktrees.list_managed(site)] == ["next"]
        if kind == "clean":
            assert refs(site) == {"main", "next"}
        elif kind == "ahead":
            assert refs(site) == {"main", "amy", "next"}, "unmerged commits need their branch"
        else:
            assert refs(site) == {"main", "next"}
            (copy,) = refs(site, "refs/bullpen/kept")
            repo = site.repo.root
            assert repo is not None
            assert git(repo, "show", f"{copy}:new.txt") == "new"
            assert git(repo, "rev-parse", f"{copy}^1") == head
    assert_healthy(site)


@pytest.mark.slow
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.storm)])
@pytest.mark.parametrize("kind", [*IN_STORM, "dirty"])
@pytest.mark.storm
def test_w7_remove_killed_before_effects(tmp_path: Path, kind: str, every: int) -> None:
    deaths = 0
    for step in range(1, MOST_STEPS, every):
        site = prepared(tmp_path, step, kind)
        head = worktrees.head(site, "amy")
        force = kind == "dirty"
        died = died_at_effect(step, partial(worktrees.remove, site, "amy", force=force))
        worktrees.create(site, Spec("next"))
        assert_removed_or_whole(site, kind, head)
        worktrees.remove(site, "amy", force=force)
        assert not (site.base / "amy").exists()
        assert_healthy(site)
        finish(site)
        if not died:
            break
        deaths += 1
    assert deaths > 20 // every


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", ["clean", "dirty"])
def test_w7_remove_killed_around_every_git(
    tmp_path: Path, kind: str, moment: str, deadly_git: Callable[..., bool]
) -> None:
    deaths = 0
    for step in range(1, MOST_STEPS):
        site = prepared(tmp_path, step, kind)
        head = worktrees.head(site, "amy")
        force = kind == "dirty"
        died = deadly_git(step, moment, partial(worktrees.remove, site, "amy", force=force))
        worktrees.create(site, Spec("next"))
        wait_until(lambda: not died or (tmp_path / "git-ended").exists())  # noqa: B023
        assert_removed_or_whole(site, kind, head)
        finish(site)
        if not died:
            break
        deaths += 1
    assert deaths >= 4


@pytest.mark.slow
def test_w6_rollback_spares_work_done_after_a_cut_short_removal(tmp_path: Path) -> None:
    """Killed after the intent, before the rename: what is written there since must survive."""
    site = prepared(tmp_path, 0, "clean")
    journal = site.repo.own_dir / "journal"
    assert died_once(lambda: any(journal.glob("*.json")), partial(worktrees.remove, site, "amy"))
    assert (site.base / "amy").exists()
    (site.base / "amy" / "later.txt").write_text("written after the crash\n")
    worktrees.gc(site)
    assert worktrees.uncommitted_files(site, "amy") == ["later.txt"]
    assert worktrees.info(site, "amy").branch == "amy"
    assert_healthy(site)


@pytest.mark.slow
def test_w7_removal_is_finished_although_its_path_is_in_use_again(tmp_path: Path) -> None:
    """Killed after the rename; then somebody makes a directory there. It is not the worktree."""
    site = prepared(tmp_path, 0, "clean")
    tree = site.base / "amy"
    assert died_once(lambda: not tree.exists(), partial(worktrees.remove, site, "amy"))
    (site.base / "amy").mkdir()
    (site.base / "amy" / "a person's.txt").write_text("x")
    worktrees.gc(site)
    assert "amy" not in refs(site)
    assert worktrees.find_record(site, "amy") is None
    assert (site.base / "amy" / "a person's.txt").exists()


@pytest.mark.parametrize(
    ("aside", "path", "is_past"),
    [(True, True, True), (True, False, True), (False, False, True), (False, True, False)],
)
def test_w7_the_point_of_no_return_is_the_move_aside(
    tmp_path: Path, aside: bool, path: bool, is_past: bool
) -> None:
    for name, is_there in (("aside", aside), ("path", path)):
        if is_there:
            (tmp_path / name).symlink_to("nowhere")  # whatever it is
    places = {"path": str(tmp_path / "path"), "aside": str(tmp_path / "aside")}
    intent = Removing(base="", name="amy", admin="", branch="", tip="", **places)
    assert is_decided(intent) == is_past


@pytest.mark.slow
def test_w6_rollback_leaves_a_strangers_branch_of_the_same_name(tmp_path: Path) -> None:
    """Killed before our branch exists; a person then makes one of that name by hand."""
    site = fresh(tmp_path, 0)
    repo = site.repo.root
    assert repo is not None
    journal = site.repo.own_dir / "journal"
    assert died_once(
        lambda: any(journal.glob("*.json")), partial(worktrees.create, site, Spec("amy"))
    )
    assert "amy" not in refs(site)
    git(repo, "branch", "amy")
    worktrees.gc(site)
    assert "amy" in refs(site)
    assert_healthy(site)


@pytest.mark.slow
def test_w6_an_orphaned_set_up_is_waited_for_before_the_rollback(tmp_path: Path) -> None:
    """Its creator is dead, but it still writes, and by absolute path."""
    site = fresh(tmp_path, 0)
    path, gate, late = site.base / "amy", tmp_path / "gate", tmp_path / "late"
    os.mkfifo(gate)
    setup = f"echo begun > {gate}; sleep 1; mkdir -p {path} && echo x > {path}/x; touch {late}"
    pid = os.fork()
    if pid == 0:
        worktrees.create(site, Spec("amy", setup=setup))
        os._exit(0)
    assert gate.read_text() == "begun\n"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    worktrees.create(site, Spec("next"))
    assert late.exists(), "rolled back while the set-up was at work"
    assert not path.exists()
    assert refs(site) == {"main", "next"}
    assert_healthy(site)


def test_w6_a_live_creator_is_not_rolled_back(tmp_path: Path) -> None:
    """A slow set-up in another process is work in progress, not a crash."""
    site = fresh(tmp_path, 0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pid = os.fork()
    if pid == 0:
        worktrees.create(site, Spec("amy", setup=f"read line < {gate}"))
        os._exit(0)
    fifo = gate.open("w")  # returns when the set-up has begun to read
    assert [entry.name for entry in worktrees.list_managed(site)] == []
    with pytest.raises(worktrees.WorktreeError) as caught:
        worktrees.create(site, Spec("amy"))
    assert caught.value.code is worktrees.Code.WORKTREE_EXISTS
    with pytest.raises(worktrees.WorktreeError) as caught:
        worktrees.ensure(site, Spec("amy"))
    assert caught.value.code is worktrees.Code.WORKTREE_EXISTS
    worktrees.gc(site)
    fifo.write("go\n")
    fifo.close()
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert [entry.name for entry in worktrees.list_managed(site)] == ["amy"]
    assert_healthy(site)


def test_w15_trash_left_by_a_crash_is_emptied_by_the_next_gc(tmp_path: Path) -> None:
    site = prepared(tmp_path, 0, "clean")
    site.trash.mkdir()
    (site.trash / "0.left").mkdir()
    (site.trash / "0.left" / "file").write_text("x")
    worktrees.gc(site)
    wait_until(lambda: not list(site.trash.iterdir()))

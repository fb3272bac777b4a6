"""N5: kill -9 at any step of a move: the target has moved or it has not, and nothing is lost.

The person's checkout has work of its own in it. After the next call it is what it was,
fast-forwarded or not, whatever step the landing was killed at.
"""

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.landing.fast_forward import own_copy
from bullpen.worktrees.landing.move import move, recover_moves
from bullpen.worktrees.landing.scratch import clear, directory_of, scratch_checkout
from tests.waiting import wait_until
from tests.worktrees.killed import died_at_effect
from tests.worktrees.landing.works import built, head_of, status, tree_of
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

MOST_STEPS = 1500


def fresh(tmp_path: Path, number: int) -> Site:
    """A repository of its own for each death, with a person's work in it, and amy's to land."""
    template = tmp_path / "template"
    if not template.exists():
        make_repo(template / "repo")
        commit(template / "repo", "dir/old.txt", "old\n")
    place = tmp_path / f"try{number}"
    shutil.copytree(template, place, symlinks=True)
    site = worktrees.open_site(place / "repo", place / "base")
    path = tree_of(site, "amy", file0_txt="amy\n", a_txt="a\n", new__deep_txt="d\n")
    git(path, "rm", "-rq", "dir")
    commit(path, "dir", "a file now\n")
    repo = place / "repo"
    (repo / "file1.txt").write_text("staged\n")
    git(repo, "add", "file1.txt")
    (repo / "file1.txt").write_text("and changed\n")
    (repo / "mine.txt").write_text("mine\n")
    return site


def assert_moved_or_not(site: Site, old: str, new: str, before: str) -> bool:
    """After the next call on that repository."""
    repo = site.repo.root
    assert repo is not None
    now = head_of(site, "main")
    assert now in (old, new)
    assert status(repo) == before
    assert git(repo, "diff", "--cached", "--name-only") == "file1.txt"
    assert (repo / "file1.txt").read_text() == "and changed\n"
    assert (repo / "file0.txt").read_text() == ("amy\n" if now == new else "file 0\n")
    assert (repo / "a.txt").exists() == (now == new)
    assert (repo / "dir").is_file() == (now == new)
    left = [path.name for path in (repo / ".git").iterdir() if path.name.startswith("bullpen.")]
    assert not left and not (repo / ".git" / "index.lock").exists()
    assert_healthy(site)
    return now == new


def finish(site: Site) -> None:
    """Some of it may be being deleted already, by who empties the trash."""
    shutil.rmtree(site.base.parent, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.storm)])
@pytest.mark.storm
def test_n5_a_move_killed_before_any_effect(tmp_path: Path, every: int) -> None:
    moved = deaths = 0
    for step in range(1, MOST_STEPS, every):
        site = fresh(tmp_path, step)
        assert site.repo.root is not None
        old, new, before = head_of(site, "main"), built(site, "amy").commit, status(site.repo.root)
        died = died_at_effect(step, partial(move, site, "main", old, new, "landed"))
        recover_moves(site.repo)
        moved += assert_moved_or_not(site, old, new, before)
        finish(site)
        if not died:
            break
        deaths += 1
    else:
        raise AssertionError("never got through")
    assert deaths > 60 // every and moved >= 1


@pytest.mark.storm
@pytest.mark.parametrize("moment", ["before", "after"])
def test_n5_a_move_killed_around_every_git(
    tmp_path: Path, moment: str, deadly_git: Callable[..., bool]
) -> None:
    deaths = 0
    for step in range(1, MOST_STEPS):
        site = fresh(tmp_path, step)
        assert site.repo.root is not None
        old, new, before = head_of(site, "main"), built(site, "amy").commit, status(site.repo.root)
        died = deadly_git(step, moment, partial(move, site, "main", old, new, "landed"))
        recover_moves(site.repo)
        wait_until(lambda: not died or (tmp_path / "git-ended").exists())  # noqa: B023
        assert_moved_or_not(site, old, new, before)
        finish(site)
        if not died:
            break
        deaths += 1
    assert deaths >= 6


def half_done(site: Site, spoil: Callable[[Path], None]) -> tuple[str, str, str]:
    """Killed right after the files were written; then `spoil` does to them what it likes."""
    repo = site.repo.root
    assert repo is not None
    old, new, before = head_of(site, "main"), built(site, "amy").commit, status(repo)
    from bullpen.worktrees.landing import fast_forward

    def die(*_args: object, **_options: object) -> None:
        spoil(repo)
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        fast_forward.swap = die  # type: ignore[assignment]
        move(site, "main", old, new, "landed")

    assert ended_by(work) == -signal.SIGKILL
    return old, new, before


def ended_by(work: Callable[[], None]) -> int:
    """How a child ends that does this."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must never return
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_n5_files_that_were_torn_are_put_back(tmp_path: Path) -> None:
    """As a power cut leaves them: empty, half, or gone."""
    site = fresh(tmp_path, 0)

    def tear(repo: Path) -> None:
        (repo / "file0.txt").write_text("am")
        (repo / "a.txt").write_text("")
        (repo / "dir").unlink()

    old, new, before = half_done(site, tear)
    recover_moves(site.repo)
    assert not assert_moved_or_not(site, old, new, before)
    move(site, "main", old, new, "landed")
    assert assert_moved_or_not(site, old, new, before), "it lands at the next try"


@pytest.mark.slow
def test_n5_files_of_odd_names_are_put_back(tmp_path: Path) -> None:
    site = fresh(tmp_path, 0)
    for name in ('"quoted".txt', "new\nline", "-dash", "tab\there", "back\\slash"):
        commit(site.base / "amy", name)
    old, new, before = half_done(site, lambda _repo: None)
    recover_moves(site.repo)
    assert not assert_moved_or_not(site, old, new, before)


@pytest.mark.slow
def test_n5_what_a_person_wrote_since_is_kept(tmp_path: Path) -> None:
    site = fresh(tmp_path, 0)
    half_done(
        site, lambda repo: (repo / "file0.txt").write_text("mine, after the crash\n") and None
    )
    recover_moves(site.repo)
    repo = site.repo.root
    assert repo is not None
    assert (repo / "file0.txt").read_text() == "mine, after the crash\n"
    assert not (repo / "a.txt").exists()
    assert (repo / "dir" / "old.txt").read_text() == "old\n"


@pytest.mark.slow
def test_n5_a_person_who_removed_the_lock_gets_the_files_back(tmp_path: Path) -> None:
    """As git advises whoever finds an `index.lock`."""
    site = fresh(tmp_path, 0)
    old, new, before = half_done(site, lambda repo: (repo / ".git" / "index.lock").unlink())
    recover_moves(site.repo)
    assert not assert_moved_or_not(site, old, new, before)


@pytest.mark.slow
def test_n5_a_lock_of_somebody_elses_git_is_left_alone(tmp_path: Path) -> None:
    site = fresh(tmp_path, 0)
    half_done(site, lambda repo: (repo / ".git" / "index.lock").unlink())
    repo = site.repo.root
    assert repo is not None
    (repo / ".git" / "index.lock").write_text("")
    recover_moves(site.repo)
    assert (repo / ".git" / "index.lock").read_text() == ""
    assert not (repo / "a.txt").exists()


@pytest.mark.slow
def test_n5_scratch_checkouts_are_thrown_away(tmp_path: Path) -> None:
    site = fresh(tmp_path, 0)
    tip = head_of(site, "amy")
    with scratch_checkout(site, tip, Spec("")) as checkout:
        assert (checkout.path / "a.txt").exists()
        (checkout.path / "a.txt").write_text("changed by verify\n")
        (checkout.path / "more.txt").write_text("and more\n")
        assert [each.name for each in worktrees.list_managed(site)] == ["amy"], "it is not listed"
    assert not checkout.path.exists()
    assert refs(site, "refs/bullpen/kept") == set(), "nothing of it is kept"

    def die_in_it() -> None:
        with scratch_checkout(site, tip, Spec("")):
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended_by(die_in_it) == -signal.SIGKILL
    assert list(directory_of(site).iterdir())
    clear(site)
    assert not list(directory_of(site).iterdir())
    assert not list(site.records.glob("landing.*"))
    assert_healthy(site)


@pytest.mark.slow
def test_n3_a_scratch_checkout_comes_from_the_pool(tmp_path: Path) -> None:
    site = fresh(tmp_path, 0)
    site = worktrees.open_site(site.repo.common_dir, site.base, pool=1)
    worktrees.fill_pool(site)
    (ready,) = worktrees.list_ready(site)
    with scratch_checkout(site, head_of(site, "amy"), Spec("")) as checkout:
        assert checkout.admin.name == ready.id
        assert (checkout.path / "a.txt").exists()
    assert worktrees.list_ready(site) == []
    assert own_copy(checkout, "x").parent == checkout.admin
    assert_healthy(site)

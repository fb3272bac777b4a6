"""Clean-up by age: old, ended, clean and merged ones only."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bullpen import clock, worktrees
from bullpen.worktrees import Site, Spec
from tests.worktrees.repos import assert_healthy, commit, git, refs

pytestmark = pytest.mark.slow

Failing = Callable[..., worktrees.WorktreeError]
WEEK = timedelta(days=7)


def in_a_month() -> datetime:
    return clock.now() + timedelta(days=30)


def always(_name: str) -> bool:
    return True


def test_w11_only_old_ended_clean_and_merged_ones_go(site: Site) -> None:
    names = ("ended", "running", "dirty", "unmerged", "locked", "detached")
    paths = worktrees.create_many(site, [Spec(name, detached=name == "detached") for name in names])
    (paths["dirty"] / "new").write_text("x")
    commit(paths["unmerged"], "one.txt")
    commit(paths["detached"], "two.txt")
    worktrees.lock(site, "locked", "its agent is at work")
    cleaned = worktrees.cleanup_orphaned(
        site, WEEK, lambda name: name != "running", now=in_a_month()
    )
    assert cleaned.worktrees == ["ended"]
    assert set(cleaned.left) == set(names) - {"ended"}
    assert "its agent is at work" in cleaned.left["locked"]
    assert "1 commit exists" in cleaned.left["unmerged"]
    assert "new" in cleaned.left["dirty"]
    assert {entry.name for entry in worktrees.list_managed(site)} == set(names) - {"ended"}
    assert "ended" not in refs(site) and "unmerged" in refs(site)
    assert_healthy(site)


@pytest.mark.parametrize(("age", "goes"), [(timedelta(days=7, minutes=1), True), (WEEK, False)])
def test_w11_older_than_means_older(site: Site, age: timedelta, goes: bool) -> None:
    worktrees.create(site, Spec("amy"))
    born = worktrees.info(site, "amy").created_at
    assert born is not None
    cleaned = worktrees.cleanup_orphaned(site, WEEK, always, now=born + age)
    assert cleaned.worktrees == (["amy"] if goes else [])
    assert worktrees.exists(site, "amy") is not goes
    assert cleaned.left == {}


def test_w11_a_clock_that_went_back_removes_nothing(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    past = datetime(1990, 1, 1, tzinfo=UTC)
    assert worktrees.cleanup_orphaned(site, WEEK, always, now=past).worktrees == []
    assert worktrees.exists(site, "amy")


def test_w11_age_of_a_swarm_worktree_is_its_sessions(site: Site) -> None:
    branch = worktrees.swarm_branch("coder", "1700000000")
    worktrees.create(site, Spec("amy", branch=branch, role="coder"))
    assert worktrees.cleanup_orphaned(site, WEEK, always).worktrees == ["amy"]
    assert branch not in refs(site)


def test_w11_one_without_a_known_age_stays(site: Site, repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "mine", str(site.base / "mine"))
    git(repo, "worktree", "add", "-q", "-b", "odd", str(site.base / "An odd name"))
    cleaned = worktrees.cleanup_orphaned(site, WEEK, always, now=in_a_month())
    assert cleaned.worktrees == []
    assert (site.base / "mine").exists() and (site.base / "An odd name").exists()


def test_w11_squash_merged_counts_as_merged(site: Site, repo: Path) -> None:
    path = worktrees.create(site, Spec("amy"))
    commit(path, "one.txt")
    commit(path, "two.txt")
    git(repo, "merge", "-q", "--squash", "amy")
    git(repo, "commit", "-qm", "Squashed")
    cleaned = worktrees.cleanup_orphaned(site, WEEK, always, now=in_a_month())
    assert cleaned.worktrees == ["amy"]


def test_w11_dry_run_only_says_so(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    path = worktrees.create(site, Spec("bob"))
    (path / "new").write_text("x")
    before = (worktrees.list_all(site), refs(site, "refs"))
    cleaned = worktrees.cleanup_orphaned(site, WEEK, always, now=in_a_month(), dry_run=True)
    assert (cleaned.worktrees, list(cleaned.left)) == (["amy"], ["bob"])
    assert (worktrees.list_all(site), refs(site, "refs")) == before


def test_w11_one_broken_worktree_does_not_stop_the_others(site: Site) -> None:
    worktrees.create_many(site, [Spec("amy"), Spec("bob")])
    (site.base / "amy" / ".git").write_text("gitdir: /nowhere\n")
    cleaned = worktrees.cleanup_orphaned(site, WEEK, always, now=in_a_month())
    assert "bob" in cleaned.worktrees
    assert not worktrees.exists(site, "bob")


def only_here(repo: Path) -> str:
    return git(repo, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Only here")


def test_w11_branches_under_the_prefix(site: Site, repo: Path) -> None:
    git(repo, "branch", "swarm/merged-1")
    git(repo, "branch", "swarm/deep/merged-2")
    git(repo, "branch", "swarm/unmerged-3", only_here(repo))
    git(repo, "branch", "swarmer/other")
    git(repo, "branch", "other/swarm")
    worktrees.create(site, Spec("amy", branch="swarm/in-use-4"))
    cleaned = worktrees.cleanup_branches(site)
    assert sorted(cleaned.branches) == ["swarm/deep/merged-2", "swarm/merged-1"]
    assert list(cleaned.left) == ["swarm/unmerged-3"]
    assert refs(site) == {
        *("main", "swarm/unmerged-3", "swarm/in-use-4", "swarmer/other", "other/swarm")
    }
    assert worktrees.cleanup_branches(site, "other").branches == ["other/swarm"]
    assert_healthy(site)


def test_w11_prefix_of_the_site(repo: Path, tmp_path: Path) -> None:
    site = worktrees.open_site(repo, tmp_path / "base", branch_prefix="team/blue")
    git(repo, "branch", "team/blue/x-1")
    git(repo, "branch", "team/red/x-1")
    assert worktrees.cleanup_branches(site).branches == ["team/blue/x-1"]


def test_w11_two_branches_that_only_hold_each_other(site: Site, repo: Path) -> None:
    """Each one's commits exist on the other: the first may go, then the second is the last."""
    lone = only_here(repo)
    git(repo, "branch", "swarm/a-1", lone)
    git(repo, "branch", "swarm/b-1", lone)
    cleaned = worktrees.cleanup_branches(site)
    assert len(cleaned.branches) == 1 and len(cleaned.left) == 1
    assert lone in {git(repo, "rev-parse", branch) for branch in cleaned.left}


def test_w11_forced_branches_are_kept_as_copies(site: Site, repo: Path) -> None:
    lone = only_here(repo)
    git(repo, "branch", "swarm/x-1", lone)
    assert worktrees.cleanup_branches(site, force=True).branches == ["swarm/x-1"]
    [copy] = worktrees.list_safety_copies(site.repo)
    assert git(repo, "rev-parse", f"{copy.ref}^1") == lone


def test_w11_branch_in_use_by_the_main_tree_stays(site: Site, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "swarm/mine-1")
    assert worktrees.cleanup_branches(site, force=True).branches == []
    assert git(repo, "status", "--porcelain") == ""


def test_w11_nothing_to_do(site: Site) -> None:
    assert worktrees.cleanup_orphaned(site, WEEK, always) == worktrees.Cleaned()
    assert worktrees.cleanup_branches(site) == worktrees.Cleaned()
    assert worktrees.gc(site) == worktrees.Cleaned()
    assert worktrees.full_cleanup(site) == worktrees.Cleaned()

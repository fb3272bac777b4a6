"""Worktrees whose base lies inside a repository are no files of that repository."""

from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Spec
from bullpen.worktrees.exclude import pattern_of
from tests.worktrees.repos import git, make_repo


def status(repo: Path) -> str:
    return git(repo, "status", "--porcelain", "--untracked-files=all")


def excluded(repo: Path) -> list[str]:
    lines = (repo / ".git" / "info" / "exclude").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("base", ["trees", "deep/er/trees", "odd [name]*\\ö", ""])
def test_w12_a_base_inside_the_repository_is_excluded_from_git(repo: Path, base: str) -> None:
    site = worktrees.open_site(repo, repo / base)
    for name in ("amy", "bob"):
        worktrees.create(site, Spec(name=name))
    assert status(repo) == ""
    before = excluded(repo)
    worktrees.create(site, Spec(name="cleo"))
    assert status(repo) == ""
    assert len(excluded(repo)) == len(before) + (base == "")  # told once


def test_w12_a_base_inside_another_repository_or_a_linked_worktree_is_excluded_there(
    repo: Path, tmp_path: Path
) -> None:
    other = make_repo(tmp_path / "other")
    worktrees.create(worktrees.open_site(repo, other / "trees"), Spec(name="amy"))
    assert status(other) == ""
    git(other, "worktree", "add", "-q", str(tmp_path / "linked"))
    worktrees.create(worktrees.open_site(repo, tmp_path / "linked" / "more"), Spec(name="bob"))
    assert status(tmp_path / "linked") == ""


def test_w12_what_is_excluded_already_gets_no_second_line(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("/.bullpen/")  # as `init` has it, or a person
    worktrees.create(worktrees.open_site(repo, repo / ".bullpen" / "worktrees"), Spec(name="amy"))
    assert excluded(repo) == ["/.bullpen/"]
    worktrees.create(worktrees.open_site(repo, repo / "trees"), Spec(name="bob"))
    assert excluded(repo) == ["/.bullpen/", "/trees/"]


def test_w12_a_base_outside_of_all_repositories_changes_none(repo: Path, tmp_path: Path) -> None:
    before = (repo / ".git" / "info" / "exclude").read_bytes()
    worktrees.create(worktrees.open_site(repo, tmp_path / "base"), Spec(name="amy"))
    assert (repo / ".git" / "info" / "exclude").read_bytes() == before


def test_w12_a_name_is_taken_literally() -> None:
    assert pattern_of("a*b[c]\\d?/") == "/a\\*b\\[c]\\\\d\\?/"

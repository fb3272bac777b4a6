"""What git packs on one machine and another one has as a branch."""

from pathlib import Path

import pytest

from bullpen.fleet import bundles
from bullpen.worktrees.git import open_repository
from tests.worktrees.repos import commit, git, make_repo

WORK = {
    "new": "",
    "main": "main is checked out",
    "moved": "moved has gone on meanwhile",
    "moved/on": "there can be no branch moved/on here",
}


@pytest.mark.parametrize("branch", WORK)
def test_l3_why_work_has_another_name_than_was_asked_for(tmp_path: Path, branch: str) -> None:
    shop, there = make_repo(tmp_path / "shop"), make_repo(tmp_path / "there")
    git(there, "fetch", "-q", str(shop), "main")
    git(there, "reset", "-q", "--hard", "FETCH_HEAD")
    work = commit(there, "work.txt")
    git(shop, "checkout", "-q", "-b", "moved")
    commit(shop, "ours.txt")
    git(shop, "checkout", "-q", "main")
    taker, repo = open_repository(there), open_repository(shop)
    bundles.pin_commit(taker, "t-1", work)
    name = bundles.take_result(repo, bundles.pack(taker, "t-1"), "t-1", branch)
    assert git(shop, "rev-parse", name).strip() == work
    assert name == (f"{branch.replace('/', '-')}-t-1" if WORK[branch] else branch)
    if WORK[branch]:
        assert bundles.why_another_name(repo, branch, name) == WORK[branch]

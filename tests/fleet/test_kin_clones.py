"""L4, M8: the repositories that a machine has of others, for the children that it starts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen.fleet import bundles
from bullpen.hub.fleet_tasks.clones import name_clone, name_repository
from bullpen.worktrees.git import open_repository
from tests.fleet.kin import Kin
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


@pytest.mark.storm
def test_m8_a_child_sees_nothing_of_another_repository_of_the_same_name(kin: Kin) -> None:
    other = make_repo(kin.h1.pen.root.parent / "other" / kin.h1.repo.name)
    secret = commit(other, "secret.txt")
    kin.h1.pen.run(role="boss", name="other", words=[], cwd=str(other))
    one, two = kin.spawn("other"), kin.spawn(kin.lead())
    assert git(kin.tree(one), "cat-file", "-t", secret) == "commit"
    seen = git(kin.tree(two), "cat-file", "--batch-check=%(objectname)", "--batch-all-objects")
    assert secret not in seen.split()
    # Those of one repository share what they have in common.
    third = kin.spawn(kin.lead())
    clones = [git(kin.tree(each), "rev-parse", "--git-common-dir") for each in (one, two, third)]
    assert clones[0] != clones[1] == clones[2]


def _clone(kin: Kin, child: str) -> Path:
    return Path(git(kin.tree(child), "rev-parse", "--path-format=absolute", "--git-common-dir"))


@pytest.mark.storm
def test_l4_the_first_children_of_a_repository_may_come_at_once(kin: Kin) -> None:
    new = make_repo(kin.h1.pen.root.parent / "new")
    kin.h1.pen.run(role="boss", name="many", words=[], cwd=str(new))
    with ThreadPoolExecutor(4) as pool:
        children = list(pool.map(lambda name: kin.spawn("many", name), "abcd"))
    assert len({_clone(kin, child) for child in children}) == 1


def test_l4_a_clone_that_is_made_by_several_at_once_is_made_once(tmp_path: Path) -> None:
    repo = open_repository(make_repo(tmp_path / "repo"))
    commit_there = bundles.pin(repo, "x", "")
    data, together = bundles.pack(repo, "x"), threading.Barrier(8)

    def unpack(directory: Path) -> None:
        together.wait(30)
        bundles.unpack(directory, data, "x", commit_there)

    for number in range(5):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(unpack, [tmp_path / f"{number}.git"] * 8))
    assert not list(tmp_path.glob(".clone-*"))


def test_l4_a_clone_that_is_none_is_made_anew(kin: Kin) -> None:
    """The machine was switched off while it was made."""
    new = make_repo(kin.h1.pen.root.parent / "half")
    kin.h1.pen.run(role="boss", name="half", words=[], cwd=str(new))
    clone = kin.h2.pen.root / "projects" / name_clone("h1", name_repository(new / ".git"))
    clone.mkdir(parents=True, exist_ok=True)
    (clone / "config.lock").touch()
    assert _clone(kin, kin.spawn("half")) == clone

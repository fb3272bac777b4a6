"""N3: an entry is about one life of a name. When its agent or worktree is removed it is cancelled,
and nobody who has that name later goes on with it."""

import json
from typing import Any

import pytest

from bullpen.hub.agents import sessions
from tests.hub.landing.yard import Yard
from tests.hub.pods.support import deadly_hub
from tests.listing import list_files
from tests.steps import before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow

BY_AGENT = {"reason": "its agent was removed", "state": "cancelled"}
BY_TREE = {"reason": "its worktree was removed", "state": "cancelled"}


def came_back(yard: Yard, name: str) -> str:
    """The id of its entry, which waits for a newer commit."""
    commit(yard.repo, "file0.txt", f"main, not {name}\n")
    (entry,) = yard.landed(name)
    assert entry["status"]["state"] == "came_back", entry
    return str(entry["id"])


def tree_of_a_person(yard: Yard, name: str, base: str = "main", **files: str) -> None:
    ran = yard.pen.cli("worktree", "create", name, "--from", base, cwd=yard.repo)
    assert ran.code == 0, ran
    for file, text in files.items():
        commit(yard.tree(name), file.replace("_", "."), text)


def status_of(yard: Yard, id: str) -> dict[str, Any]:
    status: dict[str, Any] = yard.landing(id)["status"]
    return {key: value for key, value in status.items() if key != "at"}


def wait_landed(yard: Yard, id: str) -> None:
    wait_until(lambda: status_of(yard, id)["state"] == "landed", 60)


@pytest.mark.parametrize(
    "words",
    [("finish", "zoe", "--discard"), ("finish", "zoe", "--keep"), ("rm", "zoe")],
    ids=lambda words: words[-1],
)
@pytest.mark.few(1)
def test_n3_what_waits_to_land_is_cancelled_when_its_agent_is_removed(
    yard: Yard, words: tuple[str, ...]
) -> None:
    yard.agent("zoe", file0_txt="zoe\n")
    id = came_back(yard, "zoe")
    base = yard.head()
    ran = yard.pen.cli(*words, cwd=yard.repo)
    assert ran.code == 0, ran
    assert yard.pen.cli("land", "--list").out == "nothing waits to land\n"
    assert status_of(yard, id) == BY_AGENT
    if "--discard" not in words:  # a commit by hand on the branch that stayed
        git(yard.repo, "worktree", "add", "-q", str(yard.repo.parent / "by-hand"), "zoe")
        commit(yard.repo.parent / "by-hand", "more.txt")
        git(yard.repo, "worktree", "remove", str(yard.repo.parent / "by-hand"))
    yard.agent("zoe", other_txt="other\n")
    (entry,) = yard.landed("zoe", into="main", verify="false")
    assert entry["id"] != id, "the next of that name has an entry of its own"
    assert yard.head() == base


def test_n3_gc_cancels_what_waits_to_land(yard: Yard) -> None:
    yard.agent("zoe", file0_txt="zoe\n")
    id = came_back(yard, "zoe")
    assert yard.pen.cli("stop", "zoe").code == 0
    ran = yard.pen.cli("gc", "--older-than", "0s", "--force", cwd=yard.repo)
    assert ran.code == 0 and not yard.tree("zoe").exists(), ran
    assert status_of(yard, id) == BY_TREE


@pytest.mark.storm
def test_n3_a_hub_killed_after_a_removal_leaves_no_entry_to_the_next_of_that_name(
    yard: Yard,
) -> None:
    pen = yard.pen
    yard.agent("zoe", file0_txt="zoe\n")
    id = came_back(yard, "zoe")
    pen.kill_hub()
    with deadly_hub(pen, before(sessions.remove)):
        pen.cli("rm", "zoe", cwd=yard.repo)
    assert not yard.tree("zoe").exists()
    pen.start()
    wait_until(lambda: status_of(yard, id)["state"] == "cancelled")


@pytest.mark.storm
def test_n3_another_worktree_of_that_name_does_not_go_on_with_an_entry(yard: Yard) -> None:
    """It was removed and made again while no hub was there."""
    pen = yard.pen
    git(yard.repo, "branch", "feature")
    tree_of_a_person(yard, "eve", file0_txt="eve\n")
    id = came_back(yard, "eve")
    base = yard.head()
    pen.kill_hub()
    ran = pen.cli("worktree", "remove", "eve", "--force", cwd=yard.repo)
    assert ran.code == 0, ran
    tree_of_a_person(yard, "eve", "feature", unfinished_txt="u\n")
    pen.start()
    wait_until(lambda: status_of(yard, id) == BY_TREE)
    assert yard.head() == base


@pytest.mark.storm
def test_n3_work_that_is_dropped_while_it_is_verified_does_not_land(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    yard.agent("zoe", z_txt="z\n")
    wait = "! test -e z.txt || until test -e go; do sleep 0.1; done"
    entries = {each["name"]: each["id"] for each in yard.land("amy", "zoe", verify=wait)}
    scratch = yard.pen.root / "worktrees" / ".landing"
    wait_until(lambda: bool(list_files(scratch, "*/*/z.txt")))
    (checkout,) = scratch.glob("*/*")
    ran = yard.pen.cli("finish", "zoe", "--discard", cwd=yard.repo)
    assert ran.code == 0, ran
    (checkout / "go").write_text("")
    yard.rested(entries["zoe"])
    assert status_of(yard, entries["zoe"]) == BY_AGENT
    assert yard.rested(entries["amy"])["status"]["state"] == "landed"
    assert (yard.repo / "a.txt").exists() and not (yard.repo / "z.txt").exists()


@pytest.mark.storm
def test_n3_a_branch_that_was_kept_and_a_worktree_without_an_agent_land(yard: Yard) -> None:
    """Both are asked for by the person: the one is bound to its branch, the other to itself."""
    yard.agent("zoe", file0_txt="zoe\n")
    assert yard.pen.cli("finish", "zoe", "--keep", cwd=yard.repo).code == 0
    tree_of_a_person(yard, "eve", file0_txt="eve\n")
    ids = [came_back(yard, "zoe"), came_back(yard, "eve")]
    by_hand = yard.repo.parent / "by-hand"
    git(yard.repo, "worktree", "add", "-q", str(by_hand), "zoe")
    for id, tree in zip(ids, (by_hand, yard.tree("eve")), strict=True):
        git(tree, "merge", "-q", "main", check=False)
        commit(tree, "file0.txt", f"{tree.name}\n", "Merge main")
        wait_landed(yard, id)
    assert (yard.repo / "file0.txt").read_text() == "eve\n"
    assert json.loads(yard.pen.cli("land", "--list", "--json").out)["landings"] == []

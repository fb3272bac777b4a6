"""N6: a parent takes the work of a child; sandboxed or not."""

from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.sandbox.private_git import find_store
from bullpen.model.landing import Landing
from bullpen.model.state import Idle
from bullpen.sandboxes.inside import StoreSandbox
from tests.hub.http.inside import Inside, made_inside
from tests.hub.landing.yard import Yard, made_yard
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


class Family:
    """Lea and her child in a hub in this process."""

    def __init__(self, yard: Yard, inside: Inside, role: str) -> None:
        self.yard, self.inside = yard, inside
        inside.call(self._begin())
        self.lea = yard.agent("lea", role)
        ran = yard.pen.cli(
            "run",
            "--role",
            role,
            "--name",
            "kid",
            "-d",
            "--override",
            "worktree.branch_from=lea",
            cwd=yard.repo,
        )
        assert ran.code == 0, ran
        self.kid = yard.tree("kid")
        self.be_child("kid", "lea")

    async def _begin(self) -> None:
        hub = self.inside.hub
        hub.background.begin(hub.landings.run(), "landings")
        hub.background.begin(hub.child_clean_up.run(), "clean-up")

    def be_child(self, child: str, parent: str) -> None:
        live = self.inside.hub.registry.get(child)
        live.agent = live.agent.model_copy(update={"parent": parent})

    def idle(self, name: str) -> None:
        """It has ended, as far as anybody can tell: a plain program has no turns."""
        self.yard.pen.stop(name)

    @property
    def is_boxed(self) -> bool:
        return self.inside.hub.registry.get("lea").agent.is_sandboxed

    def commit(self, name: str, file: str, text: str = "text") -> None:
        """As the agent would: one in a sandbox in its own git."""
        if not self.is_boxed:
            commit(self.yard.tree(name), file, f"{text}\n")
            return
        store = find_store(self.yard.pen.root, self.inside.hub.registry.get(name).agent)
        assert store is not None
        script = f"echo {text} > {file}; git add {file}; git commit -qm Add; git rev-parse HEAD"
        assert StoreSandbox(store).run_in_files(script).text

    def merge(self, **options: Any) -> Landing:
        return self.inside.call(self.inside.hub.child_merger.merge_child("lea", "kid", **options))


@pytest.fixture(params=["worker", "boxed"])
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    with made_yard() as yard:
        monkeypatch.setenv("HOME", yard.pen.env["HOME"])  # of the hub in this process
        with made_inside(yard.pen) as inside:
            yield Family(yard, inside, request.param)


def head(yard: Yard, ref: str) -> str:
    return git(yard.repo, "rev-parse", ref)


def test_n6_a_finished_child_lands_in_its_parents_branch_and_files(family: Family) -> None:
    yard = family.yard
    family.commit("kid", "k.txt")
    family.idle("kid")
    entry = family.merge()
    assert entry.status.state == "landed", entry
    assert (family.lea / "k.txt").exists()
    assert head(yard, "lea") == entry.status.commit
    assert git(family.lea, "status", "--porcelain") == ""
    wait_until(lambda: not family.kid.exists())
    wait_until(lambda: "kid" not in yard.pen.agents())
    assert "kid" not in git(yard.repo, "branch")
    assert git(yard.repo, "fsck", "--no-dangling") == ""


def test_n6_a_parent_with_changes_in_the_way_is_told_and_nothing_happens(family: Family) -> None:
    family.commit("kid", "k.txt")
    family.idle("kid")
    (family.lea / "k.txt").write_text("mine\n")
    old = head(family.yard, "lea")
    entry = family.merge()
    assert entry.status.state == "refused", entry
    assert entry.status.files == ("k.txt",)
    assert head(family.yard, "lea") == old
    assert (family.lea / "k.txt").read_text() == "mine\n"
    assert family.kid.exists()


def test_n6_ignored_files_of_the_parent_are_in_the_way(family: Family) -> None:
    """In a sandbox git looks itself, and would overwrite them if it were not told not to."""
    family.commit("kid", "k.txt")
    family.idle("kid")
    exclude = family.yard.repo / ".git" / "info" / "exclude"
    exclude.write_text("k.txt\n")
    store = family.yard.repo / ".git" / "bullpen" / "private"
    for path in store.glob("*/git/info/exclude") if store.exists() else ():
        path.write_text("k.txt\n")
    (family.lea / "k.txt").write_text("mine\n")
    entry = family.merge()
    assert entry.status.state == "refused", entry
    assert (family.lea / "k.txt").read_text() == "mine\n"


def test_n6_an_unfinished_child_is_refused(family: Family) -> None:
    with pytest.raises(BullpenError, match="not finished"):
        family.merge()
    family.idle("kid")
    (family.kid / "left.txt").write_text("left\n")
    with pytest.raises(BullpenError, match=r"uncommitted files \(left.txt\)"):
        family.merge()


def test_n6_nobody_else_is_merged(family: Family) -> None:
    family.idle("kid")
    family.be_child("kid", "")
    with pytest.raises(BullpenError, match="no child of lea"):
        family.merge()


def test_n6_a_conflict_is_reported_file_by_file_and_leaves_the_parent_alone(
    family: Family,
) -> None:
    family.commit("kid", "file0.txt", "kid")
    family.commit("lea", "file0.txt", "lea")
    family.idle("kid")
    before = (family.lea / "file0.txt").read_text()
    entry = family.merge()
    assert entry.status.state == "came_back", entry
    assert entry.status.files == ("file0.txt",)
    assert (family.lea / "file0.txt").read_text() == before
    assert family.kid.exists()


def test_n6_the_clean_up_waits_until_the_child_has_ended(family: Family) -> None:
    family.commit("kid", "k.txt")
    live = family.inside.hub.registry.get("kid")
    live.view = live.view.model_copy(update={"state": Idle()})
    entry = family.merge()
    assert entry.status.state == "landed", entry
    assert family.kid.exists() and live.is_running
    family.idle("kid")
    wait_until(lambda: not family.kid.exists(), 60)
    wait_until(lambda: "kid" not in family.yard.pen.agents())


def test_n6_no_branch_of_its_own_is_no_parent(family: Family, tmp_path: Path) -> None:
    mother = family.inside.hub.registry.get("lea")
    mother.agent = mother.agent.model_copy(update={"birth_branch": ""})
    with pytest.raises(BullpenError, match="no branch of its own"):
        family.merge()

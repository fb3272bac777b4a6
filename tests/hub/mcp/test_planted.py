"""What an agent plants in the directory where it works, so that the hub's git, which runs outside
of its sandbox, runs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.worktrees.repos import git

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


def plant(directory: Path, ran: Path) -> None:
    """A repository whose checkouts run a command."""
    git(directory, "init", "-q", "-b", "planted")
    git(directory, "config", "filter.planted.smudge", f"sh -c 'touch {ran}; cat'")
    (directory / ".gitattributes").write_text("* filter=planted\n")
    (directory / "bait.txt").write_text("bait\n")
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "planted")


def test_m1_a_workers_subtree_is_of_its_parents_repository_not_of_a_planted_one(
    grove: Grove,
) -> None:
    sub = grove.repo / "sub"
    sub.mkdir()
    (sub / "kept.txt").write_text("kept\n")
    git(grove.repo, "add", "-A")
    git(grove.repo, "commit", "-q", "-m", "sub")
    grove.pen.run(role="coder", name="lead", words=[], cwd=str(sub))
    [worker] = grove.call("lead", "spawn_workers", workers=[{"name": "w", "task": "x"}])["started"]
    ran = grove.pen.root.parent / "ran"
    plant(Path(worker["path"]), ran)
    child = grove.call(worker["name"], "spawn_subtree", task="x", branch_name="csv")
    assert not ran.exists()
    assert child["branch"] == "lead.csv"
    assert child["branch"] in grove.branches()


def test_m1_a_sandboxed_agent_without_a_worktree_starts_no_subtree_of_a_planted_repository(
    grove: Grove,
) -> None:
    grove.pen.role("boxed", **PROGRAM, sandbox={"enabled": True})
    plain = grove.pen.root.parent / "plain"
    plain.mkdir()
    grove.pen.run(role="boxed", name="lead", words=[], cwd=str(plain))
    ran = grove.pen.root.parent / "ran"
    plant(plain, ran)
    with pytest.raises(ToolError, match="no worktree of its own"):
        grove.call("lead", "spawn_subtree", task="x", branch_name="csv", role="coder")
    assert not ran.exists()

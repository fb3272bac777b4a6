"""`a/b`: a branch of this machine, or an agent of machine a. What is here counts first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.pen import Pen, made_pen
from tests.worktrees.repos import commit, git, make_repo

FLEET = 'fleet: {url: "nats://127.0.0.1:1", name: h1}\n'


@pytest.fixture
def repo() -> Iterator[tuple[Pen, Path]]:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "shop")
        git(repo, "config", "user.name", "Ann")
        git(repo, "config", "user.email", "ann@example.com")
        made = pen.cli("worktree", "create", "h2~amy", "--branch", "h2/amy", cwd=repo)
        assert made.code == 0, made
        commit(pen.root / "worktrees" / "h2~amy", "work.txt")
        yield pen, repo


def test_l2_a_branch_here_counts_before_an_agent_of_another_machine(repo: tuple[Pen, Path]) -> None:
    pen, directory = repo
    with (pen.root / "config.yaml").open("a") as config:
        config.write(FLEET)
    for words, shown in {
        ("diff", "h2/amy"): "+++ b/work.txt",
        ("worktree", "info", "h2/amy"): "branch       h2/amy",
        ("worktree", "conflicts", "h2/amy"): "no conflicts",
        ("worktree", "lock", "h2/amy"): "h2~amy is locked",
        ("worktree", "unlock", "h2/amy"): "h2~amy is unlocked",
        ("land", "h2/amy"): "h2~amy  on main",
        ("finish", "h2/amy", "--land"): "h2~amy removed",
    }.items():
        ran = pen.cli(*words, cwd=directory)
        assert ran.code == 0 and shown in ran.out, (words, ran)
    assert (directory / "work.txt").exists()
    assert git(directory, "branch", "--list", "h2/amy") == ""
    # Now nothing here is called so.
    for words in (("land", "h2/amy"), ("finish", "h2/amy", "--keep"), ("worktree", "info")):
        ran = pen.cli(*words, *(["h2/amy"] if words[-1] == "info" else []), cwd=directory)
        assert "h2/amy: this can be done on h2 alone" in ran.err, (words, ran)
    ran = pen.cli("diff", "h2/amy", cwd=directory)
    assert ran.code == 3 and "bullpen fleet status" in ran.err, ran


def test_l2_the_name_that_a_fleet_has_for_an_agent_of_this_machine_is_taken_here(
    repo: tuple[Pen, Path],
) -> None:
    """`list --fleet` shows it so."""
    pen, directory = repo
    with (pen.root / "config.yaml").open("a") as config:
        config.write(FLEET)
    for name in ("amy", "bob"):
        assert pen.cli("worktree", "create", name, cwd=directory).code == 0
        commit(pen.root / "worktrees" / name, f"{name}.txt")
    for words, shown in {
        ("diff", "h1/amy"): "+++ b/amy.txt",
        ("worktree", "info", "h1/amy"): "branch       amy",
        ("land", "h1/amy"): "amy  on main",
        ("finish", "h1/bob", "--keep"): "bob removed",
    }.items():
        ran = pen.cli(*words, cwd=directory)
        assert ran.code == 0 and shown in ran.out, (words, ran)
    for words in (("logs", "h1/zed"), ("record", "h1/zed"), ("agent", "stop", "h1/zed")):
        ran = pen.cli(*words, cwd=directory)
        assert ran.code == 4 and "zed" in ran.err and "h1" not in ran.err, (words, ran)


@pytest.mark.parametrize(
    "words", [("land",), ("diff",), ("finish", "--keep"), ("worktree", "info"), ("logs",)]
)
def test_l5_a_machine_in_no_fleet_takes_a_branch_for_no_machine(
    repo: tuple[Pen, Path], words: tuple[str, ...]
) -> None:
    pen, directory = repo
    ran = pen.cli(*words, "feature/login", cwd=directory)
    assert ran.code == 4, ran
    assert "nothing here is called feature/login, and this machine is in no fleet" in ran.err

"""`bullpen rm`: an agent goes as a whole, and no work with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.listing import delete
from tests.processes import alive
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Pen, Path]]:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), "worktree: {enabled: true, branch_from: main}")
        yield pen, repo


def run(pen: Pen, repo: Path, name: str) -> Path:
    ran = pen.cli("run", "--role", "worker", "--name", name, "--detach", cwd=repo)
    assert ran.code == 0, ran.err
    return pen.root / "worktrees" / name


def branches(repo: Path) -> list[str]:
    return git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def test_r8_rm_stops_an_agent_and_removes_session_worktree_and_branch(
    place: tuple[Pen, Path],
) -> None:
    pen, repo = place
    tree, program = run(pen, repo, "amy"), pen.program("amy")
    gone = pen.cli("rm", "amy")
    assert (gone.code, gone.out) == (0, "amy removed · with worktree and branch amy\n")
    assert not alive(program)
    assert not tree.exists()
    assert not pen.session("amy").exists()
    assert "amy" not in pen.agents()
    assert "amy" not in branches(repo)
    assert pen.cli("rm", "amy").code == 4
    pen.run(name="plain")
    assert pen.cli("rm", "plain").out == "plain removed\n"
    pen.run(name="tasks")
    (pen.home.worktrees / "tasks").mkdir()
    assert "kept worktree tasks, where its tasks worked ·" in pen.cli("rm", "tasks").out


def test_r8_rm_refuses_what_is_nowhere_else_and_lets_its_agent_go_on(
    place: tuple[Pen, Path],
) -> None:
    pen, repo = place
    tree, program = run(pen, repo, "bob"), pen.program("bob")
    (tree / "new.txt").write_text("work")
    other = run(pen, repo, "eve")
    refused = pen.cli("rm", "bob", "eve")
    assert refused.code == 5
    assert refused.err.startswith("error: bob has 1 uncommitted file (new.txt)\nhint:  commit")
    assert not other.exists()
    assert (alive(program), (tree / "new.txt").exists()) == (True, True)
    assert not pen.events("bob", "agent.stopping")
    # What is committed is on its branch, which stays.
    commit(tree, "new.txt")
    gone = pen.cli("rm", "bob")
    assert gone.code == 0, gone.err
    assert gone.out.endswith("kept branch bob: 1 commit nowhere else · git merge bob\n")
    assert "bob" in branches(repo)
    assert not tree.exists()


def test_w14_a_dry_run_of_rm_says_what_rm_does_and_leaves_the_agent_as_it_is(
    place: tuple[Pen, Path],
) -> None:
    pen, repo = place
    merged, ahead, dirty = (run(pen, repo, name) for name in ("dry1", "dry2", "dry3"))
    programs = [pen.program(tree.name) for tree in (merged, ahead, dirty)]
    commit(ahead, "new.txt", "dry2")
    (dirty / "new.txt").write_text("work")
    planned = pen.cli("rm", "--dry-run", "dry1", "dry2", "dry3")
    assert planned.code == 5
    assert planned.out == (
        "dry1 would be removed · with worktree and branch dry1\n"
        "dry2 would be removed · with worktree\n"
        "would keep branch dry2: 1 commit nowhere else · git merge dry2\n"
    )
    assert "dry3 has 1 uncommitted file (new.txt)" in planned.err
    assert all(alive(program) for program in programs)
    assert not [
        event for name in ("dry1", "dry2", "dry3") for event in pen.events(name, "agent.stopping")
    ]
    assert {"dry1", "dry2", "dry3"} <= set(branches(repo)) & set(pen.agents())
    done = pen.cli("rm", "dry1", "dry2", "dry3")
    spoken = planned.out.replace("would be removed", "removed").replace("would keep", "kept")
    assert (done.code, done.out) == (5, spoken)
    assert pen.ask("GET", "/agents/dry3/removal?discard=1")[0] == 200
    assert alive(programs[2])


@pytest.mark.parametrize("how", ["keep", "discard"])
def test_n1_a_dry_run_of_finish_says_what_would_go_and_touches_nothing(
    place: tuple[Pen, Path], how: str
) -> None:
    pen, repo = place
    name = f"dry-{how}"
    tree, program = run(pen, repo, name), pen.program(name)
    commit(tree, "new.txt", how)
    if how == "keep":
        expected = f"{name} would be removed\nbranch {name} would stay\n"
    else:
        (tree / "later.txt").write_text("more")
        expected = (
            f"{name} would be removed · with branch {name}\n"
            "1 commit nowhere else\n"
            "1 uncommitted file: later.txt\n"
            f"kept for 30 days: bullpen worktree restore {name}\n"
        )
    planned = pen.cli("finish", name, f"--{how}", "--dry-run", cwd=repo)
    assert (planned.code, planned.out) == (0, expected), planned.err
    assert (alive(program), tree.exists(), name in branches(repo)) == (True, True, True)
    done = pen.cli("finish", name, f"--{how}", cwd=repo)
    assert done.code == 0, done.err
    assert (tree.exists(), name in branches(repo)) == (False, how == "keep")
    if how == "discard":
        assert pen.cli("worktree", "restore", name, cwd=repo).code == 0


def test_n1_a_dry_run_of_finish_is_refused_where_it_would_say_too_little(
    place: tuple[Pen, Path],
) -> None:
    pen, repo = place
    for words in (["--land"], ["--pr"], ["--keep", "--commit", "x"]):
        refused = pen.cli("finish", "nobody", *words, "--dry-run", cwd=repo)
        assert (refused.code, "--dry-run goes with --keep or --discard" in refused.err) == (2, True)
    assert pen.cli("finish", "nobody", "--discard", "--dry-run", cwd=repo).code == 4


@pytest.mark.parametrize("why", ["dirty", "locked"])
def test_r8_what_rm_refuses_goes_by_the_one_step_that_its_hint_names(
    place: tuple[Pen, Path], why: str
) -> None:
    pen, repo = place
    tree = run(pen, repo, why)
    if why == "dirty":
        (tree / "new.txt").write_text("work")
    else:
        git(repo, "worktree", "unlock", str(tree))  # it was its agent's
        git(repo, "worktree", "lock", "--reason", "mine", str(tree))
    refused = pen.cli("rm", why)
    assert refused.code == 5
    hint, _, step = refused.err.strip().partition(" · to drop it: bullpen ")
    assert hint.endswith({"dirty": "hint:  commit it", "locked": "hint:  unlock it"}[why])
    assert step == f"finish {why} --discard"
    assert pen.cli(*step.split(), cwd=repo).code == 0
    assert not tree.exists()
    assert why not in pen.agents()


def test_v9_work_is_discarded_only_when_that_is_said_and_a_copy_stays(
    place: tuple[Pen, Path],
) -> None:
    pen, repo = place
    tree, program = run(pen, repo, "dora"), pen.program("dora")
    (tree / "new.txt").write_text("work")
    assert pen.ask("POST", "/agents/dora/remove")[0] == 409
    assert alive(program)
    status, removed = pen.ask("POST", "/agents/dora/remove?discard=1")
    assert (status, removed["name"]) == (200, "dora"), removed
    assert removed["kept"].startswith("refs/bullpen/kept/")
    assert not alive(program)
    assert not tree.exists()
    assert "dora" not in pen.agents()
    assert pen.cli("worktree", "restore", "dora", cwd=repo).code == 0
    assert (tree / "new.txt").read_text() == "work"


def test_r8_rm_of_an_agent_whose_repository_is_gone(place: tuple[Pen, Path]) -> None:
    pen, _ = place
    repo = make_repo(pen.root.parent / "short-lived")
    tree = run(pen, repo, "tom")
    for directory in (repo, tree):
        delete(directory)
    gone = pen.cli("rm", "tom")
    assert (gone.code, gone.out) == (0, "tom removed\n"), gone.err
    assert "tom" not in pen.agents()

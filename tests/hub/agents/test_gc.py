"""Clean-up of what ended agents left: one plan, printed or carried out, and no work lost."""

import os
import random
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.cli.commands.gc import text_of
from bullpen.model.gc import SESSION_OF_KEPT_TREE, GcPlan, GcStep
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import leaving, write_role, write_template
from tests.hub.programs import SLEEP
from tests.listing import delete
from tests.processes import alive
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

TREE = "worktree: {enabled: true, branch_from: main}"


def removes(what: str, *names: str, forced: bool = False) -> list[GcStep]:
    return [GcStep(do="remove", what=what, name=name, why="ended", forced=forced) for name in names]


def keeps(what: str, why: str, *names: str) -> list[GcStep]:
    return [GcStep(do="keep", what=what, name=name, why=why) for name in names]


# ── what is printed ──


@pytest.mark.parametrize(
    ("steps", "done", "lines"),
    [
        ([], True, ["removed  nothing"]),
        ([], False, ["would remove  nothing"]),
        (
            [
                *removes("session", "bob", "c", "d", "e", "f"),
                *removes("worktree", "bob"),
                *keeps("worktree", "4 uncommitted files (x.py, …)", "old-spike"),
                *keeps("session", SESSION_OF_KEPT_TREE, "old-spike"),
                *keeps("session", "still running", "amy"),
            ],
            True,
            [
                "removed  sessions of 5 ended agents, 1 merged worktree (bob)",
                "kept     old-spike: 4 uncommitted files (x.py, …)"
                " · bullpen worktree info old-spike",
                "kept     amy: still running",
            ],
        ),
        (
            [
                *removes("session", "bob"),
                *removes("worktree", "bob", forced=True),
                *removes("socket", "agent.x.sock", "agent.y.sock"),
            ],
            False,
            [
                "would remove  the session of bob, 1 worktree with work in it"
                " (bob · bullpen worktree restore bob), 2 dead sockets"
            ],
        ),
        (
            keeps("session", "still running", *"abcdefghijk"),
            True,
            ["removed  nothing", "kept     a, b, c, d, e, f, g, h and 3 more: still running"],
        ),
        (
            keeps("session", "cannot read \x1b[31m", "odd"),
            True,
            ["removed  nothing", "kept     odd: cannot read \\x1b[31m"],
        ),
    ],
)
def test_r8_text_groups_what_went_and_what_stayed(
    steps: list[GcStep], done: bool, lines: list[str]
) -> None:
    assert text_of(GcPlan(steps=tuple(steps), done=done)) == lines


# ── what is done ──


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Pen, Path]]:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_role(pen, "plain", list(SLEEP))
        pen.start()
        yield pen, repo


@pytest.fixture
def home(place: tuple[Pen, Path]) -> Iterator[Pen]:
    pen, _repo = place
    pen.start()
    yield pen
    pen.start()
    for name, agent in pen.agents().items():
        if agent["running"]:
            pen.stop(name)
    for name in pen.agents():
        pen.cli("worktree", "unlock", name, cwd=place[1])
    pen.cli("gc", "--older-than", "0s", "--force")


@pytest.fixture
def repo(place: tuple[Pen, Path]) -> Path:
    return place[1]


def ended(pen: Pen, repo: Path, *names: str, role: str = "worker") -> None:
    """Agents of that role that have run and ended."""
    write_template(pen, "many", *(f"name: {name}, role: {role}" for name in names))
    ran = pen.cli("pod", "launch", "many", cwd=repo)
    assert ran.code == 0, ran
    assert pen.cli("stop", *names, "--grace", "0s").code == 0


def gc(pen: Pen, *words: str) -> list[str]:
    ran = pen.cli("gc", "--older-than", "0s", *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def test_r8_clean_merged_worktree_goes_with_session_log_and_branch(home: Pen, repo: Path) -> None:
    before = len(home.events("amy", "worktree.removed"))
    ended(home, repo, "amy")
    assert (home.session("amy") / "output.log").exists()
    assert gc(home) == ["removed  the session of amy, 1 merged worktree (amy)"]
    assert not home.session("amy").exists()
    assert not (home.root / "worktrees" / "amy").exists()
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    assert home.agents() == {}
    removed = home.events("amy", "worktree.removed")[before:]
    assert [event["branch"] for event in removed] == ["amy"]
    assert gc(home) == ["removed  nothing"]


@pytest.mark.storm
def test_r8_dry_run_prints_the_plan_and_touches_nothing(home: Pen, repo: Path) -> None:
    ended(home, repo, "amy", "bob", "cleo")
    (home.root / "worktrees" / "bob" / "new.txt").write_text("x\n")
    commit(home.root / "worktrees" / "cleo", "mine.txt")
    planned = home.cli("gc", "--older-than", "0s", "--dry-run", "--json").json
    assert gc(home, "--dry-run") == [
        "would remove  the session of amy, 1 merged worktree (amy)",
        "kept          bob: 1 uncommitted file (new.txt) · bullpen worktree info bob",
        "kept          cleo: 1 commit exists nowhere else · bullpen worktree info cleo",
    ]
    assert sorted(home.agents()) == ["amy", "bob", "cleo"]
    done = home.cli("gc", "--older-than", "0s", "--json").json
    assert (planned["done"], done["done"]) == (False, True)
    assert done["steps"] == planned["steps"]
    assert sorted(home.agents()) == ["bob", "cleo"]


def test_r8_force_takes_work_that_can_be_brought_back(home: Pen, repo: Path) -> None:
    ended(home, repo, "amy")
    commit(home.root / "worktrees" / "amy", "mine.txt")
    (home.root / "worktrees" / "amy" / "new.txt").write_text("not committed\n")
    assert gc(home, "--force") == [
        "removed  the session of amy, 1 worktree with work in it"
        " (amy · bullpen worktree restore amy)"
    ]
    assert not (home.root / "worktrees" / "amy").exists()
    assert home.cli("worktree", "restore", "amy", cwd=repo).code == 0
    assert (home.root / "worktrees" / "amy" / "new.txt").read_text() == "not committed\n"
    assert (home.root / "worktrees" / "amy" / "mine.txt").exists()
    home.cli("worktree", "remove", "--force", "amy", cwd=repo)


def test_r8_locked_worktree_stays_whatever_is_forced(home: Pen, repo: Path) -> None:
    ended(home, repo, "amy")
    assert home.cli("worktree", "lock", "amy", "--reason", "mine", cwd=repo).code == 0
    line = "kept     amy: locked: mine · bullpen worktree info amy"
    assert gc(home) == ["removed  nothing", line]
    assert gc(home, "--force") == ["removed  nothing", line]
    assert (home.root / "worktrees" / "amy" / "file0.txt").exists()


def test_r8_running_and_recent_agents_stay(home: Pen, repo: Path) -> None:
    ended(home, repo, "bob", role="plain")
    assert home.cli("run", "--role", "worker", "--name", "amy", cwd=repo).code == 0
    ran = home.cli("gc")
    assert ran.out.splitlines() == [
        "removed  nothing",
        "kept     amy: still running",
        "kept     bob: ended less than 7d ago",
    ]
    ran = home.cli("gc", "--older-than", "1h30m", "--force")
    assert "kept     bob: ended less than 1h30m ago" in ran.out
    assert gc(home, "--force") == ["removed  the session of bob", "kept     amy: still running"]
    assert alive(home.program("amy"))


def test_r8_age_counts_from_the_end(home: Pen, repo: Path) -> None:
    """Whatever the age of the session itself, and across restarts of the hub."""
    ended(home, repo, "amy", role="plain")
    home.kill_hub()
    home.start()
    assert home.cli("gc", "--older-than", "1d").out.splitlines()[0] == "removed  nothing"
    assert home.cli("gc", "--older-than", "0s").out == "removed  the session of amy\n"


@pytest.mark.parametrize("text", ["7", "soon", ""])
def test_r8_age_that_is_none_is_a_usage_error(home: Pen, text: str) -> None:
    ran = home.cli("gc", "--older-than", text)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f'error: --older-than: "{text}" is no duration')


def test_r8_worktree_that_is_gone_keeps_no_session(home: Pen, repo: Path) -> None:
    ended(home, repo, "amy", "bob")
    tip = commit(home.root / "worktrees" / "bob", "mine.txt")
    assert home.cli("worktree", "remove", "amy", "bob", cwd=repo).code == 0
    assert gc(home) == ["removed  sessions of 2 ended agents"]
    assert git(repo, "rev-parse", "bob") == tip
    git(repo, "branch", "-D", "bob")


def test_r8_repository_that_is_gone_keeps_what_is_left(home: Pen, tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other")
    ended(home, other, "amy")
    delete(other)
    lines = gc(home, "--force")
    assert lines[0] == "removed  nothing"
    assert re.match(r"kept     amy: no such directory: .*other/\.git · bullpen", lines[1])
    assert (home.root / "worktrees" / "amy" / "file0.txt").exists()
    shutil.rmtree(home.root / "worktrees" / "amy")
    assert gc(home) == ["removed  the session of amy"]


def test_r8_sessions_that_cannot_be_read_are_kept_and_said(home: Pen, repo: Path) -> None:
    ended(home, repo, "amy", "bob", role="plain")
    home.kill_hub()
    (home.session("amy") / "session.json").write_text("{")
    (home.root / "sessions" / "nothing-in-it").mkdir()
    home.start()
    lines = gc(home, "--force")
    assert lines[0] == "removed  the session of bob"
    assert [line for line in lines if line.startswith("kept     amy: cannot read ")]
    assert [line for line in lines if line.startswith("kept     nothing-in-it: ")]
    assert (home.session("amy") / "session.json").read_text() == "{"
    shutil.rmtree(home.session("amy"))
    shutil.rmtree(home.session("nothing-in-it"))
    assert gc(home) == ["removed  nothing"]


def test_r8_sockets_of_the_dead_go_and_of_the_living_stay(home: Pen, repo: Path) -> None:
    assert home.cli("run", "--role", "plain", "--name", "amy", cwd=repo).code == 0
    wait_until(lambda: not leaving(home))
    sockets = home.root / "sockets"
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as stray:
        dead.bind(str(sockets / "agent.dead.sock"))
        stray.bind(str(sockets / "agent.stray.sock"))
        stray.listen()
        (sockets / "agent.Ünfit.sock").touch()
        before = {path.name for path in sockets.iterdir()}
        assert gc(home) == ["removed  1 dead socket", "kept     amy: still running"]
        assert {path.name for path in sockets.iterdir()} == before - {"agent.dead.sock"}
    (sockets / "agent.stray.sock").unlink()
    (sockets / "agent.Ünfit.sock").unlink()
    assert alive(home.holder("amy"))
    assert home.connect("amy")


@pytest.mark.storm
def test_r8_agent_that_is_being_started_meanwhile_is_left_alone(home: Pen, repo: Path) -> None:
    """Starts and clean-ups of the same names, again and again: whoever runs at the end has its
    session and its worktree."""
    names = ["amy", "bob", "cleo"]
    ended(home, repo, *names)
    is_over = threading.Event()

    def clean() -> None:
        while not is_over.is_set():
            home.cli("gc", "--older-than", "0s")

    cleaning = threading.Thread(target=clean)
    cleaning.start()
    try:
        for _ in range(4):
            for name in names:
                ran = home.cli("run", "--role", "worker", "--name", name, cwd=repo)
                assert ran.code == 0, ran
                assert (home.root / "worktrees" / name / "file0.txt").exists()
                assert home.record(name, "session.json")["name"] == name
            assert home.cli("stop", *names, "--grace", "0s").code == 0
    finally:
        is_over.set()
        cleaning.join(60)


def test_r8_lost_agents_can_be_cleaned_up(home: Pen, repo: Path) -> None:
    assert home.cli("run", "--role", "worker", "--name", "amy", cwd=repo).code == 0
    program, run = home.program("amy"), home.agents()["amy"]["run"]
    os.kill(home.holder("amy"), signal.SIGKILL)
    # It is lost before its worktree is unlocked, and recorded after that.
    wait_until(lambda: run in [event["run"] for event in home.events("amy", "agent.stopped")])
    assert home.state("amy").startswith("lost")
    wait_until(lambda: not alive(program))
    (line,) = gc(home)
    assert line.startswith("removed  the session of amy, 1 merged worktree (amy)")
    assert not (home.root / "sockets" / "agent.amy.sock").exists()
    assert home.agents() == {}


KINDS = {
    "running": "kept",
    "merged": "gone",
    "squashed": "gone",
    "untracked": "kept",
    "modified": "kept",
    "staged": "kept",
    "unmerged": "kept",
    "both": "kept",
    "off-branch": "kept",
    "plain": "gone",
}


def prepare(tree: Path, repo: Path, kind: str) -> None:
    """Bring an agent's worktree into that state."""
    if kind in ("untracked", "both"):
        (tree / "new" / "deep").mkdir(parents=True)
        (tree / "new" / "deep" / "file.txt").write_text("not committed\n")
    if kind == "modified":
        (tree / "file0.txt").write_text("changed\n")
    if kind == "staged":
        (tree / "staged.txt").write_text("staged\n")
        git(tree, "add", "staged.txt")
    if kind in ("unmerged", "both", "squashed"):
        commit(tree, f"{tree.name}.txt", f"work of {tree.name}\n")
    if kind == "squashed":
        git(repo, "merge", "-q", "--squash", tree.name)
        git(repo, "commit", "-qm", f"Squash {tree.name}")
    if kind == "off-branch":
        git(tree, "checkout", "-q", "--detach")
        commit(tree, "lonely.txt")


def files_of(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_r8_no_file_of_a_dirty_or_unmerged_tree_disappears(
    home: Pen, repo: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = {f"x{number}": chance.choice(list(KINDS)) for number in range(14)}
    trees = {name: home.root / "worktrees" / name for name in kinds}
    write_template(
        home,
        "mix",
        *(
            f"name: {name}, role: {'plain' if kind == 'plain' else 'worker'}"
            for name, kind in kinds.items()
        ),
    )
    assert home.cli("pod", "launch", "mix", cwd=repo).code == 0
    for name, kind in kinds.items():
        prepare(trees[name], repo, kind)
    ending = [name for name, kind in kinds.items() if kind != "running"]
    assert home.cli("stop", *ending, "--grace", "0s").code == 0
    kept = [name for name, kind in kinds.items() if KINDS[kind] == "kept"]
    before = {name: files_of(trees[name]) for name in kept}
    heads = {name: git(trees[name], "rev-parse", "HEAD") for name in kept}
    planned = home.cli("gc", "--older-than", "0s", "--dry-run", "--json").json["steps"]
    done = home.cli("gc", "--older-than", "0s", "--json").json["steps"]
    assert done == planned
    assert {name: files_of(trees[name]) for name in kept} == before
    assert {name: git(trees[name], "rev-parse", "HEAD") for name in kept} == heads
    assert sorted(home.agents()) == sorted(kept)
    assert not [name for name in kinds if name not in kept and trees[name].exists()]
    said = {step["name"] for step in done if step["do"] == "keep"}
    assert said == set(kept)
    assert home.cli("stop", "--all", "--grace", "0s").code == 0
    git(repo, "reset", "-q", "--hard", git(repo, "rev-list", "--max-parents=0", "HEAD"))

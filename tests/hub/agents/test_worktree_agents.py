"""Agents and their worktrees: locked while they run, as they were when a start fails."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.hot import wire
from bullpen.hub.agents.worktrees import LOCK_REASON
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import on_disk, write_role
from tests.hub.programs import SLEEP
from tests.processes import alive
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

TREE = "worktree: {enabled: true, branch_from: main}"


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Pen, Path]]:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_role(pen, "missing", ["/no/such/program"], TREE)
        yield pen, repo


@pytest.fixture
def home(place: tuple[Pen, Path]) -> Iterator[Pen]:
    pen, repo = place
    pen.start()
    yield pen
    pen.start()
    pen.cli("stop", "--all", "--grace", "0s")
    for name in pen.agents():
        pen.cli("worktree", "unlock", name, cwd=repo)
    pen.cli("gc", "--older-than", "0s", "--force")
    assert pen.agents() == {}


@pytest.fixture
def repo(place: tuple[Pen, Path]) -> Path:
    return place[1]


def run(pen: Pen, repo: Path, name: str, role: str = "worker") -> None:
    ran = pen.cli("run", "--role", role, "--name", name, cwd=repo)
    assert ran.code == 0, ran


def lock_of(pen: Pen, repo: Path, name: str) -> str | None:
    site = worktrees.open_site(repo, pen.root / "worktrees")
    return worktrees.lock_reason(site, name)


# ── where a start works ──


@pytest.mark.storm
def test_r5_run_says_where_it_works_and_never_leaves_its_worktree_silently(
    home: Pen, repo: Path
) -> None:
    write_role(home, "plain", list(SLEEP))
    name = f"roy-{os.urandom(3).hex()}"  # nothing of that name is left from before
    words = ["run", "--name", name, "--detach", "--role"]
    ran = home.cli(*words, "worker", cwd=repo)
    tree = home.root / "worktrees" / name
    shown = f"{name} started · worktree {tree} on branch {name} (from main)\n"
    assert ran.out.startswith(shown)
    home.stop(name)
    for other in (["worker", "--override", "worktree.enabled=false"], ["plain"]):
        refused = home.cli(*words, *other, cwd=repo)
        assert refused.code == 5
        assert refused.err.startswith(f"error: {name} has a worktree, {tree}, and this start would")
    again = home.cli(*words, "worker", cwd=repo)
    left = shown.replace("(from main)", "(as it was left)")
    assert (again.out.startswith(left), again.err) == (True, "")
    home.stop(name)
    assert home.cli(*words, "plain", cwd=tree).code == 0  # it is used


def test_w5_run_goes_on_with_a_branch_that_was_kept_and_says_so(home: Pen, repo: Path) -> None:
    git(repo, "branch", "-D", "kay", check=False)
    words = ["run", "--name", "kay", "--detach", "--role", "worker"]
    assert home.cli(*words, cwd=repo).out.splitlines()[0].endswith("on branch kay (from main)")
    tip = commit(home.root / "worktrees" / "kay", "kept.txt")
    home.stop("kay")
    assert "kept branch kay" in home.cli("rm", "kay", cwd=repo).out
    again = home.cli(*words, cwd=repo)
    assert again.out.splitlines()[0].endswith("on branch kay (as it was left)")
    assert git(home.root / "worktrees" / "kay", "rev-parse", "HEAD") == tip


def test_w5_a_branch_that_is_taken_is_refused_with_what_to_do(home: Pen, repo: Path) -> None:
    for branch in ("feature/login", "login-2"):
        git(repo, "branch", "-D", branch, check=False)
    git(repo, "branch", "feature/login")
    words = ["run", "--detach", "--role", "worker", "--name"]
    refused = home.cli(*words, "bob", "--branch", "feature/login", cwd=repo)
    assert refused.code == 5
    assert refused.err == (
        "error: branch feature/login exists already\n"
        "hint:  --branch NEW --base feature/login makes a new branch that begins at it\n"
    )
    told = ["--branch", "login-2", "--base", "feature/login"]
    ran = home.cli(*words, "bob", *told, cwd=repo)
    assert ran.out.splitlines()[0].endswith("on branch login-2 (from feature/login)")
    taken = home.cli(*words, "cat", "--branch", "login-2", cwd=repo)
    assert "hint:  --name bob goes on with it · --branch NEW --base login-2 makes" in taken.err


# ── locks ──


def test_w11_worktree_of_a_running_agent_is_not_removed(home: Pen, repo: Path) -> None:
    run(home, repo, "amy")
    for words in ([], ["--force"], ["--force", "--dry-run"]):
        ran = home.cli("worktree", "remove", "amy", *words, cwd=repo)
        assert (ran.code, ran.out) == (5, "")
        assert ran.err == "error: amy is in use: amy is running in it\nhint:  bullpen stop amy\n"
    for words in (["--older-than", "0s"], ["--all"], ["--all", "--force"]):
        ran = home.cli("worktree", "cleanup", *words, cwd=repo)
        assert (ran.code, "kept     amy: " in ran.out) == (0, True), ran
    assert git(repo, "worktree", "remove", "worktrees/amy", check=False) == ""
    assert (home.root / "worktrees" / "amy" / "file0.txt").exists()
    assert "its agent is running" in git(repo, "worktree", "list", "--porcelain")


def test_w11_worktree_is_unlocked_when_its_agent_ends(home: Pen, repo: Path) -> None:
    run(home, repo, "amy")
    assert lock_of(home, repo, "amy") == LOCK_REASON.format("amy")
    home.stop("amy")
    assert lock_of(home, repo, "amy") is None
    run(home, repo, "amy")
    assert lock_of(home, repo, "amy") == LOCK_REASON.format("amy")
    os.kill(home.program("amy"), signal.SIGKILL)
    wait_until(lambda: lock_of(home, repo, "amy") is None)
    assert not home.agents()["amy"]["running"]
    assert home.cli("worktree", "remove", "amy", cwd=repo).code == 0


@pytest.mark.parametrize("victim", ["program", "holder"])
@pytest.mark.few(1)
def test_w11_worktree_is_unlocked_by_the_next_hub(home: Pen, repo: Path, victim: str) -> None:
    run(home, repo, "amy")
    run(home, repo, "bob")
    home.kill_hub()
    holder, program = home.holder("amy"), home.program("amy")
    os.kill(program if victim == "program" else holder, signal.SIGKILL)
    wait_until(lambda: not alive(holder) and not alive(program))
    assert lock_of(home, repo, "amy") == LOCK_REASON.format("amy")
    home.start()
    assert not home.agents()["amy"]["running"]
    assert lock_of(home, repo, "amy") is None
    assert lock_of(home, repo, "bob") == LOCK_REASON.format("bob")


@pytest.mark.storm
def test_w11_lock_of_a_person_survives(home: Pen, repo: Path) -> None:
    """The start, the end, a failed start, and the next hub."""
    run(home, repo, "amy")
    home.stop("amy")
    assert home.cli("worktree", "lock", "amy", "--reason", "mine", cwd=repo).code == 0
    run(home, repo, "amy")
    assert lock_of(home, repo, "amy") == "mine"
    home.stop("amy")
    assert lock_of(home, repo, "amy") == "mine"
    failed = home.cli("run", "--role", "missing", "--name", "amy", cwd=repo)
    assert failed.code == 4
    assert lock_of(home, repo, "amy") == "mine"
    run(home, repo, "amy")
    home.kill_hub()
    os.kill(home.program("amy"), signal.SIGKILL)
    home.start()
    wait_until(lambda: not home.agents()["amy"]["running"])
    assert lock_of(home, repo, "amy") == "mine"


def test_w11_lock_that_a_person_lifted_is_no_trouble(home: Pen, repo: Path) -> None:
    run(home, repo, "amy")
    assert home.cli("worktree", "unlock", "amy", cwd=repo).code == 0
    ran = home.cli("worktree", "remove", "amy", "--force", cwd=repo)
    assert (ran.code, "amy is running in it" in ran.err) == (5, True)
    home.stop("amy")
    assert lock_of(home, repo, "amy") is None


def test_w11_lock_that_was_left_is_lifted_by_the_next_hub(home: Pen, repo: Path) -> None:
    """The repository may have been out of reach when the agent ended."""
    run(home, repo, "amy")
    run(home, repo, "bob")
    away = repo.with_name("away")
    repo.rename(away)
    home.stop("amy")
    away.rename(repo)
    assert lock_of(home, repo, "amy") == LOCK_REASON.format("amy")
    home.kill_hub()
    home.start()
    wait_until(lambda: lock_of(home, repo, "amy") is None)
    assert lock_of(home, repo, "bob") == LOCK_REASON.format("bob")


# ── starts that fail ──


def test_r5_failed_start_leaves_neither_worktree_nor_branch(home: Pen, repo: Path) -> None:
    write_role(
        home,
        "prepared",
        ["/no/such/program"],
        TREE.replace("}", ", setup: 'echo made > made.txt'}"),
    )
    before = on_disk(home, repo)
    for role in ("missing", "prepared"):
        ran = home.cli("run", "--role", role, "--name", "amy", cwd=repo)
        assert (ran.code, "/no/such/program" in ran.err) == (4, True)
        assert on_disk(home, repo) == before


def test_r3_directory_that_is_not_committed_leaves_nothing(home: Pen, repo: Path) -> None:
    empty = repo / "empty"
    empty.mkdir()
    before = on_disk(home, repo)
    ran = home.cli("run", "--role", "worker", "--name", "amy", cwd=empty)
    assert (ran.code, "has no committed files" in ran.err) == (4, True)
    assert on_disk(home, repo) == before
    empty.rmdir()


def test_r3_agent_works_in_the_same_directory_of_its_worktree(home: Pen, repo: Path) -> None:
    commit(repo, "deep/er/file.txt")
    ran = home.cli("run", "--role", "worker", "--name", "amy", cwd=repo / "deep" / "er")
    assert ran.code == 0
    tree = home.root / "worktrees" / "amy"
    assert home.agents()["amy"]["cwd"] == str(tree / "deep" / "er")
    assert Path(f"/proc/{home.program('amy')}/cwd").resolve() == tree / "deep" / "er"


def test_r5_failed_start_leaves_the_earlier_session_as_it_was(home: Pen, repo: Path) -> None:
    run(home, repo, "amy")
    tree = home.root / "worktrees" / "amy"
    commit(tree, "mine.txt")
    (tree / "half.txt").write_text("half done\n")
    home.stop("amy")
    before, shown = on_disk(home, repo), home.agents()
    ran = home.cli("run", "--role", "missing", "--name", "amy", cwd=repo, EXTRA="of a failure")
    assert ran.code == 4
    assert on_disk(home, repo) == before
    assert home.agents() == shown
    home.kill_hub()
    assert home.agents() == shown
    assert home.cli("restart", "amy").code == 0
    assert home.agents()["amy"]["running"]


def test_b8_failed_restart_leaves_the_worktree(home: Pen, repo: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    write_role(home, "mortal", [str(program), "1000000"], TREE)
    run(home, repo, "amy", "mortal")
    home.stop("amy")
    program.rename(tmp_path / "gone")
    before, shown = on_disk(home, repo), home.agents()
    ran = home.cli("restart", "amy")
    assert ran.code == 4
    assert on_disk(home, repo) == before
    assert home.agents() == shown


def test_r5_branch_of_the_agent_outlives_a_failed_start(home: Pen, repo: Path) -> None:
    """Its worktree was removed, its commits are on the branch only."""
    run(home, repo, "amy")
    tip = commit(home.root / "worktrees" / "amy", "mine.txt")
    home.stop("amy")
    assert home.cli("worktree", "remove", "amy", cwd=repo).code == 0
    before = on_disk(home, repo)
    assert home.cli("run", "--role", "missing", "--name", "amy", cwd=repo).code == 4
    assert on_disk(home, repo) == before
    assert git(repo, "rev-parse", "amy") == tip
    git(repo, "branch", "-D", "amy")


# ── agents that make git wait ──


def plant(tree: Path, where: str) -> Path:
    """A pipe where git opens a file."""
    admin = Path(git(tree, "rev-parse", "--absolute-git-dir"))
    path = {"index": admin / "index", "HEAD": admin / "HEAD"}.get(where, tree / where)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("where", ["index", "HEAD", ".gitignore", ".gitattributes"])
def test_x8_a_pipe_in_place_of_a_known_file_is_named_and_not_waited_for(
    home: Pen, repo: Path, where: str
) -> None:
    run(home, repo, "amy")
    tree = home.root / "worktrees" / "amy"
    path = plant(tree, where)
    try:
        # An attack counts only if it works without the defence: git itself waits for it.
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["git", "status"], cwd=tree, capture_output=True, timeout=1, check=False)
        status, answer = home.ask("GET", "/agents/amy/diff")
        assert (status, answer["message"]) == (409, f"git cannot look here: {path} is a pipe")
    finally:  # nobody could remove it
        path.unlink()
        if where == "HEAD":
            path.write_text("ref: refs/heads/amy\n")


@pytest.mark.storm
def test_x8_sixty_looks_at_a_tree_that_makes_git_wait_hold_up_nobody(home: Pen, repo: Path) -> None:
    """A pipe in a directory below, which nobody checks before. What happens in threads that the
    hub shares is shown in `tests/hub/test_tree_threads.py`."""
    for name in ("amy", "bob"):
        run(home, repo, name)
    tree = home.root / "worktrees" / "amy"
    pipe = plant(tree, "below/.gitignore")

    def ask() -> int:
        try:
            return home.ask("GET", "/agents/amy/diff")[0]
        except (wire.HubError, OSError):
            return 0  # the hub has left

    def waiting() -> set[int]:
        return {pid for pid, what in home.processes().items() if "status --porcelain" in what}

    with ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(ask) for _ in range(60)]
        wait_until(lambda: bool(waiting()))
        assert home.ask("GET", "/agents/bob/diff")[0] == 200
        assert home.cli("list").code == 0
        assert len(waiting()) == 1
        assert not any(future.done() for future in asked)
        ran = home.cli("hub", "restart")
        assert ran.code == 0, ran
        assert 200 not in {future.result() for future in asked}
    wait_until(lambda: not waiting())  # git of the hub that left
    assert home.ask("GET", "/agents/bob/diff")[0] == 200
    pipe.unlink()
    assert home.ask("GET", "/agents/amy/diff")[0] == 200

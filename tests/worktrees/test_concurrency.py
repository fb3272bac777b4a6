"""Many threads and processes at one repository: no operation fails, nothing is left over."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Code, Site, Spec, WorktreeError
from bullpen.worktrees.state import get_checkout
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs

PROCESSES = 4

# What one of the processes does: each thread makes, commits in and removes its own worktrees.
WORKER = """
import json, subprocess, sys, threading
from pathlib import Path
from bullpen import worktrees
from bullpen.worktrees import Spec

repo, base, process, threads, rounds = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
site = worktrees.open_site(repo, base)
failures, done = [], [0] * threads

def work(thread):
    for number in range(rounds):
        name = f"w{process}-{thread}-{number}"
        try:
            path = worktrees.create(site, Spec(name))
            done[thread] += 1
            (path / f"{name}.txt").write_text("work")
            for words in (["add", "-A"], ["commit", "-qm", name]):
                ran = subprocess.run(["git", "-C", path, *words], capture_output=True)
                if ran.returncode:
                    raise RuntimeError(f"git {words[0]}: {ran.stderr.decode()}")
            done[thread] += 1
            worktrees.remove(site, name, force=number % 2 == 0)
            done[thread] += 1
        except Exception as error:
            failures.append(f"{name}: {error!r}")

pool = [threading.Thread(target=work, args=[number]) for number in range(threads)]
[thread.start() for thread in pool]
[thread.join() for thread in pool]
print(json.dumps({"operations": sum(done), "failures": failures}))
"""


# Of each of the processes; every round is three operations: 96 and 1,152.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "rounds"), [(4, 2), pytest.param(16, 6, marks=pytest.mark.storm)]
)
def test_w13_operations_of_many_threads_and_processes_all_succeed(
    site: Site, repo: Path, threads: int, rounds: int
) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, repo, site.base, str(number), str(threads), str(rounds)],
            stdout=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    results = [json.loads(worker.communicate(timeout=600)[0]) for worker in workers]
    assert [failure for result in results for failure in result["failures"]] == []
    operations = sum(result["operations"] for result in results)
    assert operations == PROCESSES * threads * rounds * 3
    assert worktrees.list_managed(site) == []
    # Unforced removals keep the unmerged branch, forced ones keep a copy.
    half = PROCESSES * threads * rounds // 2
    assert len(refs(site) - {"main"}) == half
    assert len(worktrees.list_safety_copies(site.repo)) == half
    assert_healthy(site)


def test_w13_of_many_creators_of_one_name_exactly_one_succeeds(site: Site) -> None:
    barrier = threading.Barrier(8)

    def attempt(_number: int) -> str:
        barrier.wait()
        try:
            worktrees.create(site, Spec("amy"))
        except WorktreeError as error:
            return error.code.value
        return "made"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(attempt, range(8)))
    assert outcomes.count("made") == 1
    # BRANCH_EXISTS when the winner's branch is seen before its directory.
    assert set(outcomes) <= {"made", Code.WORKTREE_EXISTS.value, Code.BRANCH_EXISTS.value}
    assert_healthy(site)


@pytest.mark.storm
def test_w13_plain_git_never_meets_a_half_made_worktree(site: Site, repo: Path) -> None:
    """An agent's own git commands look at all worktrees while others are being made.

    (While others are removed, git itself may die of what it listed a moment before; and of a lock
    that is lifted between its look at it and its reading, as beside a plain `git worktree unlock`.)
    """
    commit(repo, "more.txt")
    stop = threading.Event()
    failures: list[str] = []

    def look() -> None:
        while not stop.is_set():
            for words in (["worktree", "list"], ["branch", "-a"], ["for-each-ref"]):
                ran = subprocess.run(["git", "-C", repo, *words], capture_output=True, check=False)
                if ran.returncode:
                    failures.append(ran.stderr.decode())

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for number in range(25):
            worktrees.create_many(site, [Spec(f"a{number}"), Spec(f"b{number}")])
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    assert [line for line in failures if "/locked': No such file" not in line] == []


@pytest.mark.slow
def test_w13_our_list_stands_locks_that_come_and_go(site: Site) -> None:
    """Plain git dies of one in twenty."""
    names = [f"a{number}" for number in range(4)]
    worktrees.create_many(site, [Spec(name) for name in names])
    stop = threading.Event()

    def flip(name: str) -> None:
        lock = get_checkout(site, name).admin / "locked"
        while not stop.is_set():
            lock.touch()
            lock.unlink()

    flippers = [threading.Thread(target=flip, args=(name,)) for name in names]
    for flipper in flippers:
        flipper.start()
    try:
        for _ in range(150):
            assert len(worktrees.list_managed(site)) == len(names)
    finally:
        stop.set()
        for flipper in flippers:
            flipper.join()


def test_w13_two_repositories_in_one_base_do_not_meet(site: Site, tmp_path: Path) -> None:
    other = worktrees.open_site(make_repo(tmp_path / "other"), site.base)
    barrier = threading.Barrier(2)

    def attempt(one: Site) -> str:
        barrier.wait()
        try:
            return str(worktrees.create(one, Spec("amy")))
        except WorktreeError as error:
            return error.code.value

    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(pool.map(attempt, (site, other)))
    assert outcomes == sorted([str(site.base / "amy"), "WORKTREE_EXISTS"])
    owners = [one for one in (site, other) if worktrees.list_managed(one)]
    assert len(owners) == 1
    loser = other if owners[0] is site else site
    assert "amy" not in refs(loser)
    assert git(site.base / "amy", "status", "--porcelain") == ""
    for one in (site, other):
        assert_healthy(one)

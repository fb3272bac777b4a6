"""Row 5c: 16 threads add, commit and remove at once; failures of bare git and of ours."""

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.table import Row
from bench.trees import WHO, make_repo
from bullpen import worktrees
from bullpen.worktrees import Spec, WorktreeError


def rows(short: bool) -> Iterator[Row]:
    """Count the failures of both. Stock git's are no goal, and soon there: ours is none at all, in
    a thousand."""
    threads, rounds, of_git = (2, 1, 1) if short else (16, 21, 5)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        bare = _storm(Path(scratch, "git"), threads, of_git, _git_add, _git_remove)
        ours = _storm(Path(scratch, "ours"), threads, rounds, _add, _remove)
    operations = threads * 3
    what = f"failures in {operations * rounds} operations (git's: in {operations * of_git})"
    yield Row("5c", what, ours, bare, 0.0, "")


def _storm(
    place: Path,
    threads: int,
    rounds: int,
    add: Callable[[Path, Path], bool],
    remove: Callable[[Path, Path], bool],
) -> int:
    place.mkdir()
    repo, base = make_repo(place / "repo", 50), place / "base"
    base.mkdir()

    is_ending = threading.Event()

    def work(thread: int) -> int:
        failures = 0
        for number in range(rounds):
            if is_ending.is_set():
                break
            path = base / f"tree-{thread}-{number}"
            failures += not add(repo, path)
            failures += not _ok("-C", path, *WHO, "commit", "-q", "--allow-empty", "-m", "work")
            failures += not remove(repo, path)
        return failures

    with ThreadPoolExecutor(threads) as pool:
        try:
            return sum(pool.map(work, range(threads)))
        finally:
            is_ending.set()  # or Ctrl-C would wait for all rounds


def _ok(*words: str | Path) -> bool:
    return subprocess.run(["git", *words], capture_output=True, check=False).returncode == 0


def _git_add(repo: Path, path: Path) -> bool:
    return _ok("-C", repo, "worktree", "add", "-b", path.name, path)


def _git_remove(repo: Path, path: Path) -> bool:
    removed = _ok("-C", repo, "worktree", "remove", "--force", path)
    return _ok("-C", repo, "branch", "-D", path.name) and removed


def _add(repo: Path, path: Path) -> bool:
    try:
        worktrees.create(worktrees.open_site(repo, path.parent), Spec(path.name))
    except WorktreeError:
        return False
    return True


def _remove(repo: Path, path: Path) -> bool:
    try:
        worktrees.remove(worktrees.open_site(repo, path.parent), path.name, force=True)
    except WorktreeError:
        return False
    return True

"""Row 5c: 16 threads add, commit and remove at once; failures of bare git and of ours."""

import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.table import Row
from bench.trees import WHO, make_repo
from bullpen import worktrees
from bullpen.worktrees import Spec, WorktreeError

THREADS = 16
ROUNDS = 22  # x 3 operations x 16 threads = 1,056


def rows() -> list[Row]:
    """Count the failures of both."""
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-") as scratch:
        bare = _storm(Path(scratch), "git", _git_add, _git_remove)
        ours = _storm(Path(scratch), "ours", _add, _remove)
    operations = THREADS * ROUNDS * 3
    return [
        Row("5c", f"failures in {operations} operations", ours, bare, goal=0, unit=""),
    ]


def _storm(
    scratch: Path,
    kind: str,
    add: Callable[[Path, Path], bool],
    remove: Callable[[Path, Path], bool],
) -> int:
    repo = make_repo(scratch / f"{kind}-repo", 50)
    base = scratch / f"{kind}-base"
    base.mkdir()

    def work(thread: int) -> int:
        failures = 0
        for number in range(ROUNDS):
            path = base / f"{kind}-{thread}-{number}"
            failures += not add(repo, path)
            failures += not _ok("-C", path, *WHO, "commit", "-q", "--allow-empty", "-m", "work")
            failures += not remove(repo, path)
        return failures

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(work, range(THREADS)))


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

"""Rows 5a and 5b: making and removing a worktree, against bare git."""

import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.table import Row, interleaved, timed, wait_until
from bullpen import worktrees
from bullpen.worktrees import Site, Spec

WHO = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
DELETE_SECONDS = 600.0  # 80,000 files on a slow disk
COLD_GOAL, POOL_GOAL, REMOVE_GOAL = 1.1, 1 / 30, 1 / 20


def make_repo(path: Path, files: int) -> Path:
    """A repository of small files, a hundred per directory."""
    path.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", path], check=True)
    for number in range(files):
        directory = path / f"d{number // 100}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}.txt").write_text(f"line of file {number}\n" * 30)
    subprocess.run(["git", "-C", path, "add", "-A"], check=True)
    subprocess.run(["git", "-C", path, *WHO, "commit", "-qm", "Start"], check=True)
    return path


def rows(short: bool) -> Iterator[Row]:
    """The goals of the pool and of removal are for big trees; in small ones starting a few
    processes is most of it."""
    if short:
        yield from measure(100, 1, POOL_GOAL, REMOVE_GOAL)
        return
    yield from measure(1_000, 9, None, None)
    yield from measure(20_000, 5, POOL_GOAL, REMOVE_GOAL)


def measure(
    files: int, rounds: int, pool_goal: float | None, remove_goal: float | None
) -> Iterator[Row]:
    """Cold and pooled creation, and removal, at one size."""
    size = f"{files:,} files"
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(make_repo(Path(scratch, "repo"), files), Path(scratch))
        bare, cold, pooled = interleaved(
            rounds, bench.git_add, partial(bench.create, pool=0), partial(bench.create, pool=1)
        )
        yield Row("5a", f"ready worktree, cold, {size}", cold, bare, COLD_GOAL)
        yield Row("5a", f"ready worktree, from the pool, {size}", pooled, bare, pool_goal)
        bare, remove, aside = interleaved(rounds, bench.git_remove, bench.remove, bench.move_aside)
        yield Row("5b", f"removal, checked, {size}", remove, bare, remove_goal)
        yield Row("5b", f"  of which the move aside, {size}", aside, bare, remove_goal)
        bench.settle()  # nothing is being deleted any more when we do that


class Bench:
    """One repository and a fresh name for every round."""

    def __init__(self, repo: Path, scratch: Path) -> None:
        self.repo = repo
        self.scratch = scratch
        self.base = scratch / "base"
        self.numbers = itertools.count()

    def site(self, pool: int = 0) -> Site:
        return worktrees.open_site(self.repo, self.base, pool=pool)

    def git(self, *words: str | Path) -> None:
        subprocess.run(["git", "-C", self.repo, *words], check=True, capture_output=True)

    def git_add(self) -> float:
        """`git worktree add` of a new branch."""
        self.settle()
        name = f"git{next(self.numbers)}"
        return timed(lambda: self.git("worktree", "add", "-b", name, self.scratch / name))

    def create(self, pool: int) -> float:
        """Our `create`, opening the repository included."""
        worktrees.fill_pool(self.site(pool))
        self.settle()
        name = f"ours{next(self.numbers)}"
        return timed(lambda: worktrees.create(self.site(pool), Spec(name)))

    def git_remove(self) -> float:
        """`git worktree remove` of a clean worktree."""
        name = f"git{next(self.numbers)}"
        self.git("worktree", "add", "-b", name, self.scratch / name)
        self.settle()
        return timed(lambda: self.git("worktree", "remove", self.scratch / name))

    def remove(self) -> float:
        """Our `remove` of a clean worktree: it looks before it moves, as git does."""
        site = self.site(pool=1)
        worktrees.fill_pool(site)
        name = f"ours{next(self.numbers)}"
        worktrees.create(site, Spec(name))
        self.settle()
        return timed(lambda: worktrees.remove(site, name))

    def move_aside(self) -> float:
        """The same without the look: a plain directory of that size."""
        site = self.site()
        name = f"plain{next(self.numbers)}"
        worktrees.create(site, Spec(name, detached=True))
        (site.base / name / ".git").unlink()
        self.git("worktree", "prune")
        self.settle()
        return timed(lambda: worktrees.remove(site, name))

    def settle(self) -> None:
        """Let the background finish deleting, and the disk writing, before the clock starts."""
        trash = self.base / ".trash"
        wait_until(lambda: not trash.exists() or not _deletable(trash), 0.01, DELETE_SECONDS)
        os.sync()


def _deletable(trash: Path) -> list[Path]:
    return [entry for entry in trash.iterdir() if entry.name.startswith("0.")]

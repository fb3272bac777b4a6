"""Rows 5a and 5b: making and removing a worktree, against bare git."""

import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator
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
    yield from measure(1_000, 7, None, None)
    yield from measure(20_000, 3, POOL_GOAL, REMOVE_GOAL)


def measure(
    files: int, rounds: int, pool_goal: float | None, remove_goal: float | None
) -> Iterator[Row]:
    """Cold and pooled creation at one size, and the removal of what was created."""
    size = f"{files:,} files"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        bench = Bench(make_repo(Path(scratch, "repo"), files), Path(scratch))
        bare, cold, pooled = interleaved(rounds, bench.git_add, bench.create, bench.create_pooled)
        yield Row("5a", f"ready worktree, cold, {size}", cold, bare, COLD_GOAL)
        yield Row("5a", f"ready worktree, from the pool, {size}", pooled, bare, pool_goal)
        bare, remove, aside = interleaved(rounds, bench.git_remove, bench.remove, bench.move_aside)
        yield Row("5b", f"removal, checked, {size}", remove, bare, remove_goal)
        yield Row("5b", f"  of which the move aside, {size}", aside, bare, remove_goal)
        bench.settle()  # nothing is being deleted any more when we do that


class Bench:
    """One repository, and the worktrees that were made of it: each is removed once."""

    def __init__(self, repo: Path, scratch: Path) -> None:
        self.repo = repo
        self.scratch = scratch
        self.base = scratch / "base"
        self.numbers = itertools.count()
        self.made: dict[str, list[str]] = {"git": [], "cold": [], "pooled": []}

    def site(self, pool: int = 0) -> Site:
        return worktrees.open_site(self.repo, self.base, pool=pool)

    def git(self, *words: str | Path) -> None:
        subprocess.run(["git", "-C", self.repo, *words], check=True, capture_output=True)

    def new(self, kind: str) -> str:
        name = f"{kind}{next(self.numbers)}"
        self.made[kind].append(name)
        return name

    def git_add(self) -> float:
        """`git worktree add` of a new branch."""
        self.settle()
        name = self.new("git")
        return timed(lambda: self.git("worktree", "add", "-b", name, self.scratch / name))

    def create(self) -> float:
        """Our `create`, opening the repository included."""
        self.settle()
        name = self.new("cold")
        return timed(lambda: worktrees.create(self.site(), Spec(name)))

    def create_pooled(self) -> float:
        """The same with one in the pool."""
        worktrees.fill_pool(self.site(pool=1))
        self.settle()
        name = self.new("pooled")
        return timed(lambda: worktrees.create(self.site(pool=1), Spec(name)))

    def git_remove(self) -> float:
        """`git worktree remove` of a clean worktree."""
        name = self.made["git"].pop()
        self.settle()
        return timed(lambda: self.git("worktree", "remove", self.scratch / name))

    def remove(self) -> float:
        """Our `remove` of a clean worktree: it looks before it moves, as git does."""
        site, name = self.site(pool=1), self.made["pooled"].pop()
        self.settle()
        return timed(lambda: worktrees.remove(site, name))

    def move_aside(self) -> float:
        """The same without the look: a plain directory of that size."""
        site, name = self.site(), self.made["cold"].pop()
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

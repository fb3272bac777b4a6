"""Real repositories, and git as a person or an agent would run it."""

import os
import subprocess
from pathlib import Path

from bullpen import worktrees
from bullpen.worktrees import Site

# For fixtures of a whole module, which are made before the environment of a test is.
TESS = {
    f"GIT_{whose}_{what}": value
    for whose in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Tess"), ("EMAIL", "tess@example.com"))
}


def git(where: Path, *words: str, check: bool = True) -> str:
    """Plain git, as a person or an agent would run it."""
    done = subprocess.run(
        ["git", "-C", where, *words],
        env={**TESS, **os.environ},
        capture_output=True,
        check=False,
        timeout=120,
    )
    if check and done.returncode:
        raise AssertionError(f"git {' '.join(words)}: {done.stderr.decode(errors='replace')}")
    return os.fsdecode(done.stdout).strip("\n")


def commit(where: Path, name: str, text: str = "text\n", message: str = "") -> str:
    """Write a file, commit it, return the commit."""
    path = where / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(where, "add", "--", name)
    git(where, "commit", "-qm", message or f"Add {name}")
    return git(where, "rev-parse", "HEAD")


def make_repo(path: Path, files: int = 3) -> Path:
    """A repository on branch main with one commit."""
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    for number in range(files):
        (path / f"file{number}.txt").write_text(f"file {number}\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "Start")
    return path


def assert_healthy(site: Site) -> None:
    """Git itself finds nothing wrong, and nothing half-made lies about."""
    where = site.repo.root or site.repo.common_dir
    assert git(where, "fsck", "--no-progress", "--no-dangling") == ""
    for entry in worktrees.list_all(site):
        if not entry.path.name.startswith("pool."):
            assert entry.prunable is None, entry
    assert not list((site.repo.own_dir / "journal").glob("*")), "an intent is left"
    assert not site.making.exists() or not list(site.making.iterdir()), "half-made is left"


def refs(site: Site, prefix: str = "refs/heads") -> set[str]:
    where = site.repo.root or site.repo.common_dir
    text = git(where, "for-each-ref", "--format=%(refname:short)", prefix)
    return set(text.split("\n")) if text else set()

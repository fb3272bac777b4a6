"""Git's administrative directory of a worktree: writes, moves and removes it as a whole.

`git worktree add` fills `<common>/worktrees/<id>` file by file, and any git that reads it meanwhile
(an agent's `git branch`, `git fetch`) dies with "failed to read commondir". So the directory is
written aside and renamed: others see it complete or not at all. The files are those of
gitrepository-layout(5). Repositories with extensions (per-worktree config, reftable, relative
paths) are left to git itself, which knows what else to write.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

from bullpen.files import read_plain, write_atomically
from bullpen.worktrees.git import Repository, git
from bullpen.worktrees.repo_lock import Lock

# Git directories of a worktree's submodules, as we name them to people; never a tracked path.
MODULES = ".git/modules"
BEING_MADE = "bullpen: being made"
# So begin the locks of those who work in a worktree: no force removes it.
AGENT_RUNS, TASK_WORKS = "its agent is running", "a task works in it"
POOLED = "bullpen: kept ready"
REASON_BYTES = 1 << 12


def add(repo: Repository, id: str, making: Path, path: Path, head: str, lock: Lock) -> Path:
    """Register a worktree that is being made at `making` and will lie at `path`.

    `head` is what its HEAD file says: `ref: refs/heads/x` or a commit. It is locked
    from the start, so that nobody's `git worktree prune` takes it while it moves.
    """
    admin = repo.admin_dir / id
    if _has_extensions(repo):
        ref = head.removeprefix("ref: refs/heads/")
        # On a branch of its own; `--detach` only where there is none.
        how = ["--detach"] if ref == head else []
        git(
            repo,
            *("worktree", "add", "--no-checkout", "--lock", "--reason", BEING_MADE),
            *how,
            *(making, ref),
            fds=[lock.fd],
        )
        write_path(admin, path)
        return admin
    aside = repo.own_dir / "new" / id
    aside.mkdir(parents=True)
    _write(aside / "HEAD", head)
    _write(aside / "commondir", "../..")
    _write(aside / "gitdir", str(path / ".git"))
    _write(aside / "locked", BEING_MADE)
    repo.admin_dir.mkdir(exist_ok=True)
    aside.rename(admin)
    making.mkdir(parents=True)
    _write(making / ".git", f"gitdir: {admin}")
    return admin


def write_path(admin: Path, path: Path) -> None:
    """Tell git where the work tree lies."""
    write_atomically(admin / "gitdir", f"{path / '.git'}\n")


def set_lock(admin: Path, reason: str) -> None:
    """Lock with a reason, as `git worktree lock` does."""
    write_atomically(admin / "locked", f"{reason}\n" if reason else "")


def lock_reason(admin: Path) -> str | None:
    """Why it is locked (perhaps an empty text); None when it is not. An agent can write there: what
    is no file locks, too, as it does for git."""
    try:
        return os.fsdecode(read_plain(admin / "locked", REASON_BYTES)).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ""


def clear_lock(admin: Path) -> None:
    """Unlock; an unlocked one is fine."""
    with contextlib.suppress(FileNotFoundError):
        (admin / "locked").unlink()


def has_modules(admin: Path) -> bool:
    """Whether commits of submodules lie in it."""
    modules = admin / "modules"
    return modules.is_dir() and any(modules.iterdir())


def save_modules(admin: Path, aside: Path) -> None:
    """Put them beside the worktree's files, before the administrative directory goes. Not among
    them: there an agent may have put some that lead elsewhere."""
    if has_modules(admin):
        saved = saved_modules(aside)
        saved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            (admin / "modules").rename(saved)
        except OSError:  # another file system
            shutil.copytree(admin / "modules", saved, symlinks=True, dirs_exist_ok=True)


def saved_modules(aside: Path) -> Path:
    """Where those of a removed worktree lie."""
    return aside.with_name(f"{aside.name}.modules")


def drop(repo: Repository, id: str) -> None:
    """Take the administrative directory away in one step, then delete it at leisure."""
    aside = repo.own_dir / "dropped" / id
    aside.parent.mkdir(exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        (repo.admin_dir / id).rename(aside)
    for leftover in (aside, repo.own_dir / "new" / id, repo.own_dir / "indexes" / id):
        shutil.rmtree(leftover, ignore_errors=True)


def delete_leftovers(repo: Repository) -> None:
    """Delete what a killed `add` or `drop` left aside; the caller holds the lock."""
    for name in ("new", "dropped"):
        with contextlib.suppress(FileNotFoundError):
            for leftover in (repo.own_dir / name).iterdir():
                shutil.rmtree(leftover, ignore_errors=True)


def _has_extensions(repo: Repository) -> bool:
    text = (repo.common_dir / "config").read_text(errors="replace")
    return re.search(r"^\s*\[extensions\]", text, re.IGNORECASE | re.MULTILINE) is not None


def _write(file: Path, line: str) -> None:
    file.write_bytes(os.fsencode(line) + b"\n")

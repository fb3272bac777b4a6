"""Writes what a sandboxed start needs. Called by the hub in a thread.

Writes where the agent cannot write. A worktree gets a git of its own (Linux); where that cannot be
had (macOS), git's own directories of the repository are completed: there nothing is overwritten and
no link is followed.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import PRIVATE_DIRECTORY
from bullpen.sandboxes import calls, limits
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.inside import StoreSandbox
from bullpen.sandboxes.mounts import (
    CALLS,
    ETC_FILES,
    LOCKS,
    SANDBOX_FILES,
    etc_directories,
    private_store,
)
from bullpen.worktrees.private.make import begin_use
from bullpen.worktrees.private.refresh import refresh


def prepare(policy: Policy) -> None:
    """Names for the user and the group, the limits."""
    with _os_errors_named():
        policy.sockets.mkdir(mode=0o700, exist_ok=True)
        write_sandbox_files(policy)
    limits.prepare(policy, limits.find())


def prepare_private_git(policy: Policy) -> None:
    """The agent's own git, made or brought up to date. What an agent of before could write to is
    cleaned once, and carried over."""
    store = private_store(policy)
    if store is None or policy.git is None:
        return
    with _os_errors_named():
        if not store.exists:
            remove_planted(policy.git)
        if begin_use(store):
            refresh(store, StoreSandbox(store))


def prepare_shared_git(policy: Policy) -> None:
    """Where an agent writes into the repository's own directories."""
    if policy.git and policy.git.admin != policy.git.common:
        with _os_errors_named():
            remove_planted(policy.git)
            _complete(policy.git)


@contextlib.contextmanager
def _os_errors_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BullpenError(
            f"cannot prepare a sandbox: {error.strerror}: {error.filename}", kind=Kind.UNAVAILABLE
        ) from error


def write_sandbox_files(policy: Policy) -> None:
    """The /etc of the sandbox, the filter of calls, and the place of what is masked."""
    (policy.session / PRIVATE_DIRECTORY).mkdir(mode=0o700, exist_ok=True)
    etc = policy.session / SANDBOX_FILES / "etc"
    etc.mkdir(mode=0o755, parents=True, exist_ok=True)
    _write(etc.parent / CALLS, calls.program())
    for directory in etc_directories():
        (etc / directory.name).mkdir(exist_ok=True)
    for name in ETC_FILES:
        with contextlib.suppress(OSError):  # what is not there, or not for us to read
            _write(etc / name, Path("/etc", name).read_bytes())
    uid, gid = os.getuid(), os.getgid()
    name, shell = "user", "/bin/sh"
    with contextlib.suppress(KeyError):  # a user without a name is common in containers
        account = pwd.getpwuid(uid)
        name, shell = account.pw_name, account.pw_shell
    _write(etc / "passwd", os.fsencode(f"{name}:x:{uid}:{gid}::{policy.person}:{shell}\n"))
    _write(etc / "group", os.fsencode(f"{name}:x:{gid}:\n"))


def _write(path: Path, content: bytes) -> None:
    """Only if need be. By a rename: sandboxes that run read it."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content)
        new.chmod(0o644)
        new.replace(path)


def _complete(repo: Git) -> None:
    """What is protected has to be there: what is missing can be made by the agent."""
    for directory in (repo.common / "objects" / "info", repo.common / "logs", repo.common / LOCKS):
        directory.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        os.close(os.open(repo.admin / "config.worktree", flags, 0o644))


def remove_planted(repo: Git) -> list[Path]:
    """Remove links and pipes where an agent may write in the repository, and say which there were.

    git makes none there. It follows links: a reflog that is one makes the next commit outside
    write a line into whatever it leads to, and a directory of objects that is one has gc delete
    what another repository needs. It waits for pipes: one among the refs stops every git. Called
    where agents share the repository's directories, or did before they had a git of their own.
    """
    removed: list[Path] = []
    objects = repo.common / "objects"
    deep = {repo.common / "logs": True, repo.common / "refs": True, repo.admin: True}
    # Of the objects the directories alone: there may be very many, and git opens one by its name.
    for top, is_deep in {**deep, objects: False, objects / "pack": False}.items():
        if not top.is_dir():
            continue
        # By descriptors, so that a directory that becomes a link meanwhile leads nowhere.
        for directory, names, files, descriptor in os.fwalk(top, follow_symlinks=False):
            for name in (*names, *files):
                with contextlib.suppress(FileNotFoundError):
                    mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                    if stat.S_ISLNK(mode) or stat.S_ISFIFO(mode):
                        os.unlink(name, dir_fd=descriptor)
                        removed.append(Path(directory, name))
            if not is_deep:
                break
    return removed

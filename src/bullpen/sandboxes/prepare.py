"""What has to be written before a program starts behind walls; the hub calls it in a thread.

Everything goes where the agent cannot write, but for git's own directories of the repository: there
nothing is overwritten and no link is followed.
"""

import contextlib
import os
import pwd
import stat
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.paths import KEPT_BACK
from bullpen.sandboxes import calls, limits
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.mounts import CALLS, ETC_FILES, LOCKS, WALLS, etc_directories
from bullpen.worktrees.git import Repository, git

REFS = "refs.before"


def prepare(policy: Policy) -> None:
    """Names for the user and the group, git's missing files, a record of all refs, the limits."""
    try:
        policy.doors.mkdir(mode=0o700, exist_ok=True)
        write_walls(policy)
        if policy.git and policy.git.admin != policy.git.common:
            remove_planted(policy.git)
            _complete(policy.git)
            _record_refs(policy.git, policy.session / REFS)
    except OSError as error:
        raise BullpenError(
            f"cannot prepare a sandbox: {error.strerror}: {error.filename}", kind=Kind.UNAVAILABLE
        ) from error
    limits.prepare(policy, limits.find())


def write_walls(policy: Policy) -> None:
    """The /etc of the sandbox, the filter of calls, and the place of what is masked."""
    (policy.session / KEPT_BACK).mkdir(mode=0o700, exist_ok=True)
    etc = policy.session / WALLS / "etc"
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
        found = pwd.getpwuid(uid)
        name, shell = found.pw_name, found.pw_shell
    _write(etc / "passwd", os.fsencode(f"{name}:x:{uid}:{gid}::{policy.person}:{shell}\n"))
    _write(etc / "group", os.fsencode(f"{name}:x:{gid}:\n"))


def _write(path: Path, content: bytes) -> None:
    """Only if need be. By a rename: sandboxes that run read it."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(content)
        beside.chmod(0o644)
        beside.replace(path)


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
    before each start, and to be called after each end.
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


def _record_refs(repo: Git, file: Path) -> None:
    """In the form that `git update-ref --stdin` takes, so that a moved ref can be put back."""
    words = "%(if)%(symref)%(then)%(else)update %(refname) %(objectname)%(end)"
    place = Repository(git_dir=repo.common, common_dir=repo.common, root=None)
    told = git(place, "for-each-ref", f"--format={words}").text
    lines = [line for line in told.splitlines() if line]
    write_atomically(file, "".join(f"{line}\n" for line in lines), 0o600)

"""Checks that what git is going to open is a plain file of a sane size.

An agent may have put a pipe there, which git would wait for until its time is up, a link, or a file
without end. Called before git looks at a checkout. A file that becomes a pipe after the check is
left to the time-out. Changes nothing.
"""

import contextlib
import os
import re
import stat
from pathlib import Path, PurePath

from bullpen.files import read_plain
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, resolve

SMALL_BYTES = 1 << 20
INDEX_BYTES = 1 << 28
HEAD_BYTES = 1 << 12
# In the administrative directory of a worktree.
OF_ADMIN = {
    **dict.fromkeys(("HEAD", "commondir", "gitdir", "config.worktree"), SMALL_BYTES),
    "index": INDEX_BYTES,
}
OF_COMMON = {"HEAD": SMALL_BYTES, "config": SMALL_BYTES, "packed-refs": INDEX_BYTES}
# Git opens them by their names. Those of deeper directories are left to the time-out.
OF_TREE = dict.fromkeys((".gitignore", ".gitattributes", ".gitmodules"), SMALL_BYTES)
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
REF = re.compile(r"ref: (refs/[^\s\x00-\x1f]+)")
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def check_plain(path: Path, most: int, *, may_link: bool = False) -> None:
    """Raise unless it is a plain file of at most that size, or not there."""
    try:
        status = path.stat() if may_link else path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise unreadable(path, KINDS.get(stat.S_IFMT(status.st_mode), "no plain file"))
    if status.st_size > most:
        raise unreadable(path, f"a file of {status.st_size} bytes")


def unreadable(path: Path, what: str) -> WorktreeError:
    """The error for what git must not be given."""
    return WorktreeError(
        Code.WORKTREE_CORRUPT,
        f"git cannot look here: {path} is {what}",
        hint="take it away, and look again",
    )


def check_admin(admin: Path) -> None:
    """The files of a worktree that git reads in its administrative directory."""
    for name, most in OF_ADMIN.items():
        check_plain(admin / name, most)


def check_repository(common_dir: Path) -> None:
    """The files of a repository that every git reads."""
    for name, most in OF_COMMON.items():
        check_plain(common_dir / name, most, may_link=True)


def check_listed(repo: Repository) -> None:
    """What `git worktree list` opens of every worktree. A pipe there would stop it for all."""
    with contextlib.suppress(FileNotFoundError):
        for admin in repo.admin_dir.iterdir():
            for name in ("HEAD", "gitdir", "commondir", "locked"):
                path = admin / name
                if path.is_fifo():
                    raise unreadable(path, "a pipe")


def check_checkout(repo: Repository, checkout: Checkout) -> None:
    """All that is known by name of what git opens to look at a checkout."""
    check_repository(repo.common_dir)
    if checkout.admin != repo.common_dir:
        check_admin(checkout.admin)
    check_plain(checkout.admin / "index", INDEX_BYTES)
    for name, most in OF_TREE.items():
        if not (checkout.path / name).is_symlink():  # git does not follow it
            check_plain(checkout.path / name, most)


def read_head(repo: Repository, checkout: Checkout) -> str:
    """What HEAD says: a commit, or `ref: ` and a ref that git may open."""
    path = checkout.admin / "HEAD"
    try:
        text = os.fsdecode(read_plain(path, HEAD_BYTES)).strip()
    except OSError as error:
        raise unreadable(path, "not there, or no plain file") from error
    ref = REF.fullmatch(text)
    if ref and ".." not in ref[1]:
        file = repo.common_dir / ref[1]
        if not file.is_dir():  # of branches below that name
            check_plain(file, HEAD_BYTES)
        return text
    if COMMIT.fullmatch(text):
        return text
    raise unreadable(path, "neither a commit nor a ref")


def read_commit(repo: Repository, head: str) -> str:
    """The commit that a HEAD names, from its own words or from the file of its ref; empty where
    git has to be asked. Saves a process."""
    ref = REF.fullmatch(head)
    if ref and str(PurePath(ref[1])) != ref[1]:  # `main/` is no ref, and its path is that of main
        return ""
    try:
        text = (
            head if ref is None else os.fsdecode(read_plain(repo.common_dir / ref[1], HEAD_BYTES))
        )
    except OSError:
        return ""
    return text.strip() if COMMIT.fullmatch(text.strip()) else ""


def find_tip(repo: Repository, ref: str) -> str | None:
    """The commit of a branch; None if there is none of that name. From the file of its ref, if it
    has one: asking git costs a process."""
    commit = "" if ".." in ref else read_commit(repo, f"ref: {ref}")
    return commit or resolve(repo, [ref])[ref]

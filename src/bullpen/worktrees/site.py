"""A site: one repository, the base directory of its worktrees, and the settings for them.

Every function of the library takes one. Also the paths below it: worktrees lie flat in the base
(`<base>/<name>`); Bullpen's own files are in directories that start with a dot, which no
worktree's name does.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.files import read_plain
from bullpen.model.names import check_worktree_name
from bullpen.worktrees import branches
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, open_repository
from bullpen.worktrees.port_blocks import DEFAULT_RANGE

PERSONA_FILE = "CLAUDE.md"
GIT_FILE_BYTES = 8192
RECORDS = ".records"
# Nothing there, a link, a socket, a directory, a pipe.
NO_GIT_FILE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EAGAIN),
    errno.EINVAL,
}


@dataclass(frozen=True)
class Site:
    """The repository, the base directory of its worktrees, and their settings."""

    repo: Repository
    base: Path
    branch_prefix: str = branches.DEFAULT_PREFIX
    pool: int = 0
    max_depth: int = 2
    port_range: range = DEFAULT_RANGE

    @property
    def making(self) -> Path:
        """Half-made worktrees, until one rename puts them in place."""
        return self.base / ".making"

    @property
    def records(self) -> Path:
        """One record per worktree: its branch, base, role, parent, ports."""
        return self.base / RECORDS

    @property
    def trash(self) -> Path:
        """Removed worktrees, until the background has deleted them."""
        return self.base / ".trash"

    @property
    def pool_dir(self) -> Path:
        """Ready checkouts of this repository (a base may serve several)."""
        key = hashlib.sha256(os.fsencode(self.repo.common_dir)).hexdigest()[:12]
        return self.base / ".pool" / key


def open_site(
    repo: Path,
    base: Path,
    *,
    branch_prefix: str = branches.DEFAULT_PREFIX,
    pool: int = 0,
    max_depth: int = 2,
    port_range: range = DEFAULT_RANGE,
) -> Site:
    """The site of the repository that holds `repo`. Touches nothing."""
    return Site(
        repo=open_repository(repo),
        base=base.expanduser().resolve(),
        branch_prefix=branch_prefix,
        pool=pool,
        max_depth=max_depth,
        port_range=port_range,
    )


def sites_in(site: Site, bases: Iterable[Path]) -> list[Site]:
    """The site, then the same in other bases: where new worktrees are made may have been changed
    while those of before were in use."""
    others = dict.fromkeys(base for base in bases if base != site.base)
    return [site, *(replace(site, base=base) for base in others)]


def path_for(site: Site, name: str) -> Path:
    """Where the worktree of that name lies or would lie."""
    try:
        return site.base / check_worktree_name(name)
    except BullpenError as error:
        raise WorktreeError(Code.INVALID, error.message, hint=error.hint) from error


def is_name(name: str) -> bool:
    """Whether a worktree of ours can be called that."""
    try:
        check_worktree_name(name)
    except BullpenError:
        return False
    return True


def exists(site: Site, name: str) -> bool:
    """Whether anything lies there, intact or not."""
    return os.path.lexists(path_for(site, name))


def persona_path(roles: Path, role: str) -> Path:
    """Where a directory role keeps its persona."""
    return roles / role / PERSONA_FILE


def persona_exists(roles: Path, role: str) -> bool:
    """Whether the role has one."""
    return persona_path(roles, role).is_file()


def find_checkout(site: Site, path: Path) -> Checkout | None:
    """The worktree at `path` as git's own records know it.

    Read from the administrative directories, never from the `.git` file in the tree.
    """
    usual = site.repo.admin_dir / path.name
    if recorded_path(usual) == path:  # else it has another name there; that needs a look at all
        return Checkout(path, usual)
    return next((each for each in list_checkouts(site.repo) if each.path == path), None)


def list_checkouts(repo: Repository) -> Iterator[Checkout]:
    """All worktrees of the repository but the main one, wherever they lie."""
    try:
        entries = sorted(repo.admin_dir.iterdir())
    except FileNotFoundError:
        return
    for admin in entries:
        path = recorded_path(admin)
        if path is not None:
            yield Checkout(path, admin)


def recorded_path(admin: Path) -> Path | None:
    """The work tree that an administrative directory belongs to."""
    try:
        text = os.fsdecode(read_plain(admin / "gitdir", GIT_FILE_BYTES)).removesuffix("\n")
    except OSError as error:
        if error.errno in NO_GIT_FILE:
            return None
        raise
    # Absolute, or relative to the administrative directory (git 2.48, relativeWorktrees)
    return Path(os.path.normpath(admin / text)).parent


def points_to(path: Path, admin: Path) -> bool:
    """Whether the tree's `.git` file names that administrative directory."""
    target = git_file_target(path)
    return target is not None and os.path.realpath(path / target) == os.path.realpath(admin)


def git_file_target(path: Path) -> str | None:
    """Where the tree's `.git` file points; None when there is no such file.

    An agent may have put anything there: a pipe would keep us waiting for ever.
    """
    try:
        file = os.open(path / ".git", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            text = os.fsdecode(os.read(file, GIT_FILE_BYTES)).removesuffix("\n")
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in NO_GIT_FILE:
            return None
        raise
    target = text.removeprefix("gitdir: ")
    return None if target == text or "\0" in target else target


def foreign_repository(site: Site, path: Path) -> Path | None:
    """The other repository whose worktree lies at `path`; None for ours and for no worktree."""
    target = git_file_target(path)
    if target is None:
        return None
    admin = Path(os.path.realpath(path / target))
    # Only if that repository says the same: the file in the tree may be planted.
    if admin.parent == site.repo.admin_dir or recorded_path(admin) != path:
        return None
    return admin.parent.parent


def is_intact(checkout: Checkout) -> bool:
    """Both halves are there and point to each other."""
    return points_to(checkout.path, checkout.admin) and (checkout.admin / "HEAD").is_file()

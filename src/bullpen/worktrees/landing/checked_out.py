"""Where a branch is checked out, and what stands in the way of its fast-forward there. Only looks.

Files that git ignores count: `git read-tree` and `git merge` overwrite them in silence, and an
agent that adds its `.env` by force would destroy the person's.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.files import read_plain
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, git
from bullpen.worktrees.listing import list_all
from bullpen.worktrees.own_index import Look
from bullpen.worktrees.site import Site, points_to, recorded_path

HEADS = "refs/heads/"
NOTHING = "000000"  # the mode of what is not there
NAME_BYTES = 1 << 12
MOST_NAMED = 20
# What git keeps while something is unfinished, and what a person calls that.
UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "sequencer": "a sequence of picks",
}
# Which branch a tree with a detached head will come back to.
COMES_BACK_TO = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")


class InTheWayError(WorktreeError):
    """The checkout of the target holds what the landing would change, or is busy."""

    def __init__(
        self, message: str, path: Path, files: tuple[str, ...] = (), hint: str = ""
    ) -> None:
        details: dict[str, object] = {"path": str(path), "files": list(files[:MOST_NAMED])}
        super().__init__(Code.DIRTY, message, hint=hint, details=details)
        self.path = path
        self.files = files


@dataclass(frozen=True)
class Change:
    """One file that differs between two commits."""

    status: str  # A, M, D or T
    name: str
    old_mode: str
    old: str
    new_mode: str
    new: str

    @property
    def was(self) -> bool:
        """Whether it was there before."""
        return self.old_mode != NOTHING


def find_target(site: Site, branch: str) -> Checkout | None:
    """The checkout that is on the branch; raises if it is unfinished there, or on it twice."""
    checkouts = []
    for checkout, on in _checkouts(site):
        busy = find_unfinished(checkout.admin)
        if on == branch or (busy and _comes_back_to(checkout.admin, branch)):
            if busy:
                raise InTheWayError(
                    f"{checkout.path} is in the middle of {busy}, and {branch} belongs to it",
                    checkout.path,
                    hint="finish or abort it there, and land again",
                )
            checkouts.append(checkout)
    if len(checkouts) > 1:
        where = ", ".join(str(checkout.path) for checkout in checkouts)
        raise InTheWayError(f"{branch} is checked out more than once: {where}", checkouts[0].path)
    return checkouts[0] if checkouts else None


def _checkouts(site: Site) -> Iterator[tuple[Checkout, str]]:
    """All of the repository, each with the branch that it is on."""
    repo = site.repo
    admins = {}
    if repo.admin_dir.is_dir():
        admins = {recorded_path(admin): admin for admin in sorted(repo.admin_dir.iterdir())}
    for number, entry in enumerate(list_all(site)):
        if entry.bare:
            continue
        if number == 0:  # git lists the main one first
            admin = repo.common_dir
            is_known = _is_main(entry.path, admin)
        else:
            admin = admins.get(entry.path, Path())
            is_known = points_to(entry.path, admin)
        if is_known:
            yield Checkout(entry.path, admin), entry.branch
        elif entry.branch and entry.prunable is None and os.path.lexists(entry.path):
            raise InTheWayError(f"cannot tell what lies at {entry.path}", entry.path)


def _is_main(path: Path, common: Path) -> bool:
    link = path / ".git"
    return (link.is_dir() and link.resolve() == common) or points_to(path, common)


def find_unfinished(admin: Path) -> str:
    """What is under way in that checkout; empty: nothing."""
    return next((what for name, what in UNFINISHED.items() if os.path.lexists(admin / name)), "")


def _comes_back_to(admin: Path, branch: str) -> bool:
    for name in COMES_BACK_TO:
        try:
            text = os.fsdecode(read_plain(admin / name, NAME_BYTES)).strip()
        except OSError:
            continue
        if text.removeprefix(HEADS) == branch:
            return True
    return False


def list_changes(repo: Repository, old: str, new: str) -> list[Change]:
    """The files that differ between two commits."""
    words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    fields = git(repo, *words, timeout=600).text.split("\0")
    changes = []
    for meta, name in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, before, after, status = meta.removeprefix(":").split(" ")
        changes.append(Change(status[:1], name, old_mode, before, new_mode, after))
    return changes


def entries_before(changes: list[Change]) -> list[str]:
    """The files that change, as they were: for an index (`update-index --index-info`)."""
    return [f"{change.old_mode} {change.old}\t{change.name}" for change in changes if change.was]


def find_in_the_way(look: Look, changes: list[Change]) -> tuple[str, ...]:
    """What a fast-forward would overwrite, or would have to leave as it is. The look is at what
    these files were before."""
    root = look.own.path
    own = {*look.differing(), *look.staged()}
    goes = {change.name for change in changes if change.status == "D"}
    names = [change.name for change in changes if change.name in own]
    for change in changes:
        if change.status == "A" and change.name not in own:
            names += _blocking(root, change.name, goes)
    return tuple(dict.fromkeys(names))


def _blocking(root: Path, name: str, goes: set[str]) -> list[str]:
    """What lies where a new file is to be, or where a directory above it is to be."""
    path = root / name
    for parent in list(Path(name).parents)[-2::-1]:
        above = root / parent
        if os.path.lexists(above) and (above.is_symlink() or not above.is_dir()):
            return [] if str(parent) in goes else [str(parent)]
    if not os.path.lexists(path):
        return []
    if path.is_symlink() or not path.is_dir():
        return [name]
    inside = (
        os.path.relpath(os.path.join(directory, file), root)  # noqa: PTH118 - any bytes
        for directory, directories, files in os.walk(path)
        for file in (*files, *(d for d in directories if os.path.islink(f"{directory}/{d}")))  # noqa: PTH114
    )
    return [file for file in inside if file not in goes]

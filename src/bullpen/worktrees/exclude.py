"""Lines of `info/exclude`: what lies in a repository and is not part of it.

Called by `create` for the base of worktrees, by `prepare` for copies of personas and by `home` for
homes. Adds lines and changes none. Runs no git: it is looked at before every worktree.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from bullpen.worktrees.site import git_file_target

OWN = (".making", ".pool", ".records", ".trash")  # beside the worktrees


def add_lines(file: Path, lines: Iterable[str]) -> None:
    """Add those that are missing, in one write: somebody else may add theirs."""
    present = file.read_bytes() if file.exists() else b""
    missing = [line for line in map(os.fsencode, lines) if line not in present.split(b"\n")]
    if missing:
        file.parent.mkdir(exist_ok=True)
        gap = b"" if present.endswith(b"\n") or not present else b"\n"
        with file.open("ab") as exclude:
            exclude.write(gap + b"".join(line + b"\n" for line in missing))


def pattern_of(path: str) -> str:
    """The line that hides the directory at this path from the top of the repository."""
    # A pattern cannot hold a newline; `?` matches it.
    return "/" + re.sub(r"([\\*?\[])", r"\\\1", path.strip("/")).replace("\n", "?") + "/"


def exclude_base(base: Path, names: Iterable[str]) -> None:
    """Hide the base from the repository that it lies in, if it lies in one. Of a base that is the
    top of the repository itself only the worktrees of these names are hidden."""
    top = next((each for each in (base, *base.parents) if os.path.lexists(each / ".git")), None)
    if top is None:
        return
    common = _common_dir(top)
    if not os.path.lexists(common / "HEAD"):  # an empty directory of that name is no repository
        return
    file = common / "info" / "exclude"
    if top == base:
        add_lines(file, [pattern_of(name) for name in (*OWN, *names)])
        return
    inside = base.relative_to(top)
    above = [inside, *inside.parents][:-1]
    present = file.read_bytes().split(b"\n") if file.exists() else []
    if not any(os.fsencode(pattern_of(str(each))) in present for each in above):
        add_lines(file, [pattern_of(str(inside))])


def _common_dir(top: Path) -> Path:
    """Of a submodule and a linked worktree `.git` is a file."""
    target = git_file_target(top)
    if target is None:
        return top / ".git"
    git_dir = top / target
    try:
        return git_dir / os.fsdecode((git_dir / "commondir").read_bytes()).removesuffix("\n")
    except FileNotFoundError:
        return git_dir

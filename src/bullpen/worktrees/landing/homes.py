"""Keeps what agents have written out of the home that lies in a checkout of their repository.

A role, an agent's file or a director's in there says what runs, with which rights: whoever could
land one would be out of every sandbox. Git does not see the home, unless somebody adds its files by
force. Called by `hub/landing` for each commit that was built, before it is verified.
"""

from collections.abc import Sequence
from pathlib import Path

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository, git
from bullpen.worktrees.listing import list_all
from bullpen.worktrees.site import Site

MOST_NAMED = 3


def find_homes(site: Site, home: Path) -> tuple[str, ...]:
    """Where the home lies in the checkouts of the repository; most often `.bullpen`, or nowhere."""
    real = home.resolve()
    roots = [entry.path.resolve() for entry in list_all(site) if not entry.bare]
    return tuple({str(real.relative_to(root)) for root in roots if real.is_relative_to(root)})


def refuse_homes(repo: Repository, homes: Sequence[str], old: str, new: str) -> None:
    """Raise if the two commits differ there, in whatever case: some file systems know none."""
    if not homes:
        return
    # "." is a home that is the checkout itself: all of it.
    places = [] if "." in homes else [f":(top,icase,literal){home}" for home in homes]
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", *places)
    files = [name for name in git(repo, *words, timeout=600).text.split("\0") if name]
    if files:
        named = ", ".join(files[:MOST_NAMED]) + (", …" if len(files) > MOST_NAMED else "")
        raise WorktreeError(
            Code.INVALID,
            f"it would write to the home of Bullpen, which says what agents may: {named}",
            hint="have that taken out of its commits; if it is what you want, look at it and use"
            " git merge",
            details={"files": files[:100]},
        )

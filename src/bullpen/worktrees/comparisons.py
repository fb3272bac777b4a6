"""What a worktree has changed since it was made, and which worktrees would conflict.

Called by `bullpen diff` and `bullpen conflicts`, and by the hub for its API. Changes nothing.
"""

import itertools

from bullpen.worktrees.changes import Compared, VerifiedCheckout, compare
from bullpen.worktrees.git import Repository, branch_exists
from bullpen.worktrees.listing import info, list_managed
from bullpen.worktrees.records import find_record
from bullpen.worktrees.site import Site, find_checkout
from bullpen.worktrees.state import fork_point


def compare_worktree(site: Site, name: str, against: str = "") -> tuple[Compared, str]:
    """The difference, and the commit that it begins at."""
    about = info(site, name)
    base = fork_point(site, name, about.head, against) if about.head else ""
    listed = find_checkout(site, about.path)
    assert listed is not None  # `info` has found it
    repo = Repository(listed.admin, site.repo.common_dir, about.path)
    return compare(VerifiedCheckout(repo, about.path), base or about.head), base


def pairs_of(site: Site) -> list[tuple[str, str]]:
    """Each worktree with the branch that its work goes into, and with every other."""
    names = [each.name for each in list_managed(site) if each.head.strip("0")]
    bases = [(name, base) for name in names if (base := base_of(site, name))]
    return [*bases, *itertools.combinations(names, 2)]


def base_of(site: Site, name: str) -> str:
    """The branch that a worktree's work goes into, if it is there."""
    record = find_record(site, name)
    base = record.target if record else ""
    return base if base and branch_exists(site.repo, base) else ""

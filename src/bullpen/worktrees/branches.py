"""Branch names: the four schemes, and what git allows. Pure.

A plain agent has its own name; a swarm session `<prefix>/<role>-<session>`; a subtree
`<parent's birth branch>.<slug>`; a detached head has no branch.
"""

import re
from collections import Counter
from collections.abc import Mapping

from bullpen.worktrees.errors import Code, WorktreeError

DEFAULT_PREFIX = "swarm"

# git-check-ref-format(1)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|\.$|/$")


def is_valid_branch(branch: str) -> bool:
    """Whether git takes it as the name of a branch."""
    return bool(branch) and not (
        branch.startswith(("-", "/", ".")) or branch in {"@", "HEAD"} or _FORBIDDEN.search(branch)
    )


def check_branch(branch: str) -> str:
    """The branch itself, or an error."""
    if not is_valid_branch(branch):
        raise WorktreeError(
            Code.INVALID,
            f"git does not allow {branch!r} as a branch",
            hint="see git check-ref-format",
        )
    return branch


def swarm_branch(role: str, session: str, prefix: str = DEFAULT_PREFIX) -> str:
    """`swarm/reviewer-1700000000`; a session is always named."""
    check_session(session)
    return check_branch(f"{prefix}/{role}-{session}")


def check_session(session: str) -> None:
    """A session has an id."""
    if not session:
        raise WorktreeError(
            Code.INVALID,
            "a swarm branch needs a session id",
            hint="a word or a number of your choice, e.g. 1700000000",
        )


def is_of_session(branch: str, role: str, name: str, session: str) -> bool:
    """Whether the branch of that worktree is one of that session, under whichever prefix."""
    own = f"/{role}-{session}"
    return branch.endswith((own, f"{own}-{name}"))


def swarm_branches(
    roles: Mapping[str, str], session: str, prefix: str = DEFAULT_PREFIX
) -> dict[str, str]:
    """The swarm branch of each name, by its role. Where several have one role, their names behind
    the session tell them apart."""
    many = {role for role, count in Counter(roles.values()).items() if count > 1}
    return {
        name: swarm_branch(
            role, f"{session}-{name}" if session and role in many else session, prefix
        )
        for name, role in roles.items()
    }


def swarm_created_at(branch: str, role: str, prefix: str = DEFAULT_PREFIX) -> int:
    """The digits right after `<prefix>/<role>-`; 0 when there are none."""
    start = f"{prefix}/{role}-"
    digits = re.match(r"[0-9]+", branch.removeprefix(start)) if branch.startswith(start) else None
    return int(digits[0]) if digits else 0


def subtree_branch(parent_branch: str, slug: str) -> str:
    """`main` + `feature-a` -> `main.feature-a`."""
    return check_branch(f"{parent_branch}.{slug}")

"""What the API answers about worktrees. Pure.

Made by `hub/http/worktrees.py`, read by `client`.
"""

from pydantic import Field

from bullpen.model.value import Value


class WorktreeShown(Value):
    """A worktree as it is found: what it was made from, what is changed in it, how far it is from
    its base."""

    name: str
    path: str
    branch: str = Field(description="empty with a detached head")
    head: str = Field(description="a commit; empty before the first")
    base: str
    role: str
    parent: str
    depth: int
    locked: str | None = Field(description="why, perhaps empty; null if it is not")
    created_at: float | None
    changes: tuple[str, ...] = Field(description="names of files that are not committed")
    ahead: int = Field(description="commits that its base has not")
    behind: int = Field(description="commits of its base that it has not")
    ports: tuple[int, ...]
    where: str = Field(description="the branch of its agent, if that is another one")


class BrokenWorktree(Value):
    """One that cannot be looked at."""

    name: str
    path: str
    error: str


class WorktreeList(Value):
    """The worktrees of one repository."""

    worktrees: tuple[WorktreeShown | BrokenWorktree, ...]
    not_brought_over: dict[str, str] = Field(
        default={}, description="why commits of sandboxed agents are missing here, by worktree"
    )

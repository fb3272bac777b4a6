"""What a clean-up removes and keeps, and why: one plan, printed or carried out. Pure."""

from typing import Literal

from bullpen.model.value import Value

What = Literal["session", "worktree", "socket"]
SESSION_OF_KEPT_TREE = "its worktree is kept"


class GcStep(Value):
    """One thing to remove, or to keep and why. `forced`: work would not be safe without it."""

    do: Literal["remove", "keep"]
    what: What
    name: str
    why: str
    forced: bool = False


class GcPlan(Value):
    """The plan; `done` when it was carried out."""

    steps: tuple[GcStep, ...]
    done: bool


class GcProgress(Value):
    """How far a clean-up has come."""

    doing: Literal["looking", "removing"]
    number: int
    of: int

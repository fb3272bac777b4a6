"""What a clean-up removes and keeps, and why: one plan, printed or carried out. Pure."""

from typing import Literal

from bullpen.model.state import Value

What = Literal["session", "worktree", "socket"]


class Step(Value):
    """One thing to remove, or to keep and why."""

    do: Literal["remove", "keep"]
    what: What
    name: str
    why: str


class Swept(Value):
    """The plan; `done` when it was carried out."""

    steps: tuple[Step, ...]
    done: bool

"""The tree of agents as the API shows it. Pure."""

from pydantic import Field

from bullpen.model.state import State
from bullpen.model.tree import ChildKind, Outcome
from bullpen.model.value import Value


class TreeNode(Value):
    """One agent and its children."""

    name: str
    kind: ChildKind
    role: str = ""
    engine: str = ""
    branch: str = ""
    state: State
    words: str
    since: float
    running: bool
    reported: str = Field(default="", description="`success` or `failure`, if it did")
    reported_at: float | None = None
    landing: str = Field(default="", description="what waits to land and why, for the owner")
    usd: float = 0.0
    budget_usd: float | None = None
    children: tuple["TreeNode", ...] = ()


class Tree(Value):
    """Those that a person started, each with what descends from it."""

    agents: tuple[TreeNode, ...]


class Waited(Value):
    """How one agent stands to somebody who waits for it."""

    name: str
    outcome: Outcome
    words: str


class Waiting(Value):
    """Of all that are waited for; `over`: the wait is."""

    over: bool
    agents: tuple[Waited, ...]

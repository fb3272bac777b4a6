"""What hubs send each other about children that an agent of one starts on the machine of the other.
Pure.

To the child's machine: `Birth`, `Orphaned`, `Merged`. To its parent's: `Born`, `ChildUpdate`. All
of them go as letters (`model/letter`): in their order, each once. `id` is the child's, made by its
parent's hub.
"""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from bullpen.model.child_event import EventKind
from bullpen.model.letter_fields import AgentName, Commit, Moment
from bullpen.model.parcel import Parcel
from bullpen.model.rights import Rights
from bullpen.model.role import Engine
from bullpen.model.value import Value

ChildId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Word = Annotated[str, Field(max_length=250, pattern=r"^[^\x00]*$")]
Words = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _is_below(path: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        raise ValueError("it leads out of the repository")
    return path


Below = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$"), AfterValidator(_is_below)]


class Birth(Value):
    """An agent of the sender's starts a child on the receiver's machine. `ceiling` is what it may
    do at most; `parcel` brings the commit that its branch begins at."""

    kind: Literal["birth"] = "birth"
    id: ChildId
    at: Moment
    parent: AgentName
    parent_role: Word = ""
    parent_engine: Word = ""
    is_trusted: bool = False  # what its repository brings, by its parent
    depth: Annotated[int, Field(ge=1, le=1000)]
    branch: Word
    below: Below = "."
    role: Word
    engine: Engine | None = None
    task: Annotated[str, Field(max_length=1 << 20, pattern=r"^[^\x00]*$")]
    ceiling: Rights
    repo_name: Word = ""
    parcel: Parcel


class Born(Value):
    """What became of a birth: its name and path there; or why it was `refused`."""

    kind: Literal["born"] = "born"
    id: ChildId
    name: AgentName | Literal[""] = ""
    path: Words = ""
    not_granted: tuple[Word, ...] = ()
    refused: Words = ""
    hint: Words = ""


class Used(Value):
    """What a child and all below it have used so far."""

    tokens: Annotated[int, Field(ge=0)] = 0
    usd: Amount = 0.0
    minutes: Amount = 0.0


class ChildUpdate(Value):
    """What a parent is told of its child. Without an `event`: only that it `is_over`. `tip` is the
    last commit on its branch, which `parcel` brings, unless it is that at which it began;
    `problem`: why it does not."""

    kind: Literal["told"] = "told"
    id: ChildId
    event: EventKind | Literal[""] = ""
    data: dict[str, Any] = Field(default_factory=dict)
    key: Words
    is_over: bool = False
    tip: Commit | Literal[""] = ""
    parcel: Parcel | None = None
    uncommitted: tuple[Word, ...] = ()
    problem: Words = ""
    used: Used = Used()


class Orphaned(Value):
    """Its parent has ended. It is to be stopped, or has another one."""

    kind: Literal["orphaned"] = "orphaned"
    id: ChildId
    is_to_stop: bool = False
    heir: AgentName | Literal[""] = ""


class Merged(Value):
    """Its parent's branch has its work up to that commit: when it has ended it may go."""

    kind: Literal["merged"] = "merged"
    id: ChildId
    tip: Commit


AboutChild = Birth | Born | ChildUpdate | Orphaned | Merged

"""An event in the queue of an agent, or of `root`: what its children did, what
became of tasks that it gave, and that somebody wrote.

Pure. `hub/tree/queue` stores them, `wait_for_event` and `bullpen events` show them.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from bullpen.model.value import Value

EventKind = Literal[
    "child_finished", "child_exited", "child_idle", "child_blocked", "task_finished", "message"
]
KINDS: tuple[EventKind, ...] = (
    "child_finished",
    "child_exited",
    "child_idle",
    "child_blocked",
    "task_finished",
    "message",
)


class ChildEvent(Value):
    """One event. `sender` is the child, the agent that did the task, or who wrote."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    id: int
    kind: str
    sender: str = Field(alias="from")
    at: float
    data: dict[str, Any] = Field(default_factory=dict)


class ChildEvents(Value):
    """Of one queue, the oldest first. `last` is where to go on."""

    events: tuple[ChildEvent, ...] = ()
    last: int = 0

"""Events: the entries of the event log, before (`Draft`) and after they have a number.

Pure, and light to import. The hub's rooms make drafts, `hub/store` numbers and stores them, the
API and the clients read them.
"""

from dataclasses import dataclass, field
from typing import Any

KINDS = frozenset(
    {
        "agent.starting",
        "agent.started",
        "agent.stopping",
        "agent.stopped",
        "agent.state",
        "agent.conversation",
        "agent.conversation_lost",
        "agent.failed",
        "agent.parked",
        "agent.resumed",
        "agent.restarted",
        "agent.gave_up",
        "hook.received",
        "message.sent",
        "message.delivered",
        "message.read",
        "message.refused",
        "task.state",
        "approval.asked",
        "approval.answered",
        "permission.reviewed",
        "budget.warned",
        "budget.reached",
        "worktree.created",
        "worktree.removed",
        "git.news",
        "landing.state",
        "child.reported",
        "child.adopted",
        "child.refused",
        "child.delegated",
        "spawn.launching",
        "spawn.launched",
        "spawn.failed",
        "pod.launching",
        "pod.launched",
        "pod.failed",
        "pod.sequence",
        "pod.finished",
        "pod.landed",
        "hub.started",
        "upkeep.worktrees",
        "upkeep.events",
        "input.typed",
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the log. Ids only grow; `time` is seconds since 1970; `agent` may be empty."""

    id: int
    time: float
    kind: str  # not only of KINDS: a log may hold what another version wrote
    agent: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """An event to be. A `key` makes it happen once: the second draft with it changes nothing."""

    time: float
    kind: str
    agent: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    key: str = ""


def to_json(event: Event) -> dict[str, Any]:
    """The form on the wire."""
    return {
        "id": event.id,
        "time": event.time,
        "kind": event.kind,
        "agent": event.agent,
        "data": event.data,
    }

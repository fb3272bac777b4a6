"""Calls of `/tree`: who descends from whom, the queues of events, waiting for agents. No I/O."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.agent_shown import StoppedTree
    from bullpen.model.child_event import ChildEvents
    from bullpen.model.tree_shown import Tree, Waiting


def get_tree() -> "Call[Tree]":
    """Every agent under the one that started it. Its text takes `colour`."""
    return Call("GET", path("tree"), read=Model("tree_shown.Tree"))


def stop_tree(name: str, grace: float | None = None) -> "Call[StoppedTree]":
    """End an agent and all that descend from it, leaves first."""
    return Call(
        "DELETE",
        path("tree", name),
        {"grace": grace},
        again=True,
        read=Model("agent_shown.StoppedTree"),
    )


def list_queue(
    name: str, after: int = 0, limit: int | None = None, seconds: float = 0.0
) -> "Call[ChildEvents]":
    """What reached the queue of an agent, or of `root`; waits so long for the first."""
    query = {"after": after, "limit": limit, "seconds": seconds}
    return Call(
        "GET",
        path("agents", name, "queue"),
        query,
        wait_seconds=seconds,
        read=Model("child_event.ChildEvents"),
    )


def wait_for_agents(
    names: Sequence[str], any: bool = False, seconds: float = 0.0
) -> "Call[Waiting]":
    """Whether they are idle, finished, blocked or gone; waits so long for that."""
    query = {"names": ",".join(names), "any": int(any), "seconds": seconds}
    return Call("GET", path("wait"), query, wait_seconds=seconds, read=Model("tree_shown.Waiting"))

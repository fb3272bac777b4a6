"""Calls of `/agents/{name}/status`, `/shutdown` and `/config` of task agents. No I/O."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, given, path

if TYPE_CHECKING:
    from bullpen.model.component import AgentConfig, AgentConfigured, Leaving, Status


def get_agent_status(name: str) -> "Call[Status]":
    """An agent that takes tasks, as a component."""
    return Call("GET", path("agents", name, "status"), read=Model("component.Status"))


def shut_agent_down(
    name: str, *, timeout_seconds: float | None = None, force: bool | None = None
) -> "Call[Leaving]":
    """No more tasks; the one that runs is waited for, then the agent leaves. Refused while there
    is a task if neither is said."""
    body = given(timeout_seconds=timeout_seconds, force=force)
    return Call(
        "POST",
        path("agents", name, "shutdown"),
        body=body or None,
        again=True,
        read=Model("component.Leaving"),
    )


def get_agent_config(name: str) -> "Call[AgentConfig]":
    """What its file says, with what it does not say filled in."""
    return Call("GET", path("agents", name, "config"), read=Model("component.AgentConfig"))


def set_agent_config(name: str, config: Mapping[str, object]) -> "Call[AgentConfigured]":
    """Write its file, after checking it as a whole."""
    return Call(
        "PUT",
        path("agents", name, "config"),
        body=config,
        read=Model("component.AgentConfigured"),
    )

"""Calls of `/status` and `/shutdown`: the hub itself. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.component import HubStatus, Leaving


def get_status() -> "Call[HubStatus]":
    """The hub as a component, and in a few figures. Starts no hub."""
    return Call("GET", path("status"), starts_hub=False, read=Model("component.HubStatus"))


def shut_down(*, restart: bool = False) -> "Call[Leaving]":
    """End the hub; answered before it has left. Agents and their tasks go on. Before a `restart`
    connections to the hub's ports wait for the next hub."""
    query = {"restart": "true"} if restart else None
    return Call("POST", path("shutdown"), query, starts_hub=False, read=Model("component.Leaving"))

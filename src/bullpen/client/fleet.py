"""Calls of `/fleet`: the machines of the fleet. No I/O."""

from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.fleet import FleetShown


def get_fleet(*, agents: bool = False) -> "Call[FleetShown]":
    """All machines with their agents, and how this one stands to them. Its text has a line for each
    machine, with `agents` for each agent."""
    return Call(
        "GET",
        path("fleet"),
        {"agents": 1 if agents else None},
        read=Model("fleet.FleetShown"),
    )

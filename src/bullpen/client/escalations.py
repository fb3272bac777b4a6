"""Calls of `/escalations`: what a director leaves to a person. No I/O."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bullpen.client.call import Call, Model, path

if TYPE_CHECKING:
    from bullpen.model.approval import Approval


def open_escalation(
    name: str, what: str, about: Mapping[str, str] | None = None
) -> "Call[Approval]":
    """Ask a person, as a director. The same `name` (32 hexadecimal digits) is the same question."""
    return Call(
        "PUT",
        path("escalations", name),
        body={"what": what, "about": dict(about or {})},
        again=True,
        read=Model("approval.Approval"),
    )


def get_escalation(name: str) -> "Call[Approval]":
    """What came of it."""
    return Call("GET", path("escalations", name), read=Model("approval.Approval"))


def withdraw_escalation(name: str) -> "Call[Approval]":
    """Nobody has to decide it any more."""
    return Call("DELETE", path("escalations", name), again=True, read=Model("approval.Approval"))

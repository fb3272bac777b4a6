"""Calls of `/landings`: land agents' work in a branch. No I/O."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, given, path

if TYPE_CHECKING:
    from bullpen.model.landing import Landing, LandingList, LandingOutput


def list_landings(everything: bool = False) -> "Call[LandingList]":
    """What waits to land, is landing, or came back; with `everything` also what was over lately."""
    query = {"all": 1 if everything else None}
    return Call("GET", path("landings"), query, read=Model("landing.LandingList"))


def land(
    names: Sequence[str],
    *,
    into: str | None = None,
    strategy: Literal["merge", "squash", "rebase"] | None = None,
    verify: str | None = None,
) -> "Call[LandingList]":
    """Put the work of these agents into the queue of its target branch, all or none."""
    body = {"names": list(names), **given(into=into, strategy=strategy, verify=verify)}
    model: Model[LandingList] = Model("landing.LandingList")
    return Call("POST", path("landings"), body=body, again=True, read=model)


def get_landing(id: str, *, wait: float = 0.0) -> "Call[Landing]":
    """One entry; with `wait` once nothing more happens to it by itself, or after these seconds."""
    query = {"wait": wait or None}
    model: Model[Landing] = Model("landing.Landing")
    return Call("GET", path("landings", id), query, wait_seconds=wait, read=model)


def get_landing_output(id: str) -> "Call[LandingOutput]":
    """What the command that verifies it has written, also while it runs."""
    model: Model[LandingOutput] = Model("landing.LandingOutput")
    return Call("GET", path("landings", id, "output"), read=model)


def cancel_landing(name: str) -> "Call[LandingList]":
    """Take the entries of that agent, or the one of that id, out of their queues."""
    model: Model[LandingList] = Model("landing.LandingList")
    return Call("DELETE", path("landings", name), again=True, read=model)

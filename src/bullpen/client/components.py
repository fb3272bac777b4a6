"""Calls of `/components`: directors, views and bridges say where they are. No I/O."""

from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, Models, given, path

if TYPE_CHECKING:
    from bullpen.model.component import Component


def list_components(*, gone: bool = False) -> "Call[list[Component]]":
    """All components whose process lives, by name; with `gone` those, too, that died."""
    query = {"gone": 1} if gone else {}
    return Call("GET", path("components"), query=query, read=Models("component.Component"))


def register_component(
    name: str,
    kind: Literal["director", "view", "bridge"],
    url: str,
    pid: int,
    version: str,
    state: str | None = None,
    problem: str | None = None,
) -> "Call[Component]":
    """Make a component known. The same process may do so again, and says how it is."""
    body = {"name": name, "kind": kind, "url": url, "pid": pid, "version": version}
    body |= given(state=state, problem=problem)
    return Call(
        "POST", path("components"), body=body, again=True, read=Model("component.Component")
    )


def remove_component(name: str) -> "Call[Component]":
    """Forget a component. Its process is left alone."""
    return Call("DELETE", path("components", name), read=Model("component.Component"))

"""`/components`: directors, views and bridges say where they are."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.guard import actor_of, owner_or_director
from bullpen.hub.http.state import HubPart
from bullpen.model.component import Component, Registration

router = APIRouter(tags=["components"], dependencies=[Depends(owner_or_director)])

Name = Annotated[str, Path(max_length=80, description="a component's name")]
Gone = Annotated[bool, Query(description="also those that died without leaving")]


@router.get("/components", response_model=list[Component])
async def list_components(hub: HubPart, request: Request, gone: Gone = False) -> Any:
    """All components whose process lives, by name; a director sees itself. With `gone`, also those
    that died within a day without leaving."""
    own = actor_of(request).director
    known = await hub.components.living()
    known += await hub.components.gone() if gone else []
    return [one for one in known if own in ("", one.name)]


@router.post("/components", status_code=201, response_model=Component)
async def register_component(hub: HubPart, request: Request, registration: Registration) -> Any:
    """Make a director, a view or a bridge known. The same process may do so again; a name that
    another living process has is refused. It is known until its process ends, and survives
    restarts of the hub."""
    _refuse_other(request, registration.name, registration.kind)
    return await hub.components.register(registration)


@router.delete("/components/{name}", response_model=Component)
async def remove_component(hub: HubPart, request: Request, name: Name) -> Any:
    """Forget a component. Its process is left alone."""
    _refuse_other(request, name, "director")
    return await hub.components.remove(name)


def _refuse_other(request: Request, name: str, kind: str) -> None:
    """A director registers itself, as what it is."""
    own = actor_of(request).director
    if own and (name, kind) != (own, "director"):
        raise BullpenError("a director registers itself alone", kind=Kind.DENIED)

"""`/components`: directors, views and bridges say where they are."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path

from bullpen.hub.guard import owner_only
from bullpen.hub.http.state import HubPart
from bullpen.model.component import Component, Registration

router = APIRouter(tags=["components"], dependencies=[Depends(owner_only)])

Name = Annotated[str, Path(max_length=80, description="a component's name")]


@router.get("/components", response_model=list[Component])
async def list_components(hub: HubPart) -> Any:
    """All components whose process lives, by name."""
    return await hub.components.living()


@router.post("/components", status_code=201, response_model=Component)
async def register_component(hub: HubPart, asked: Registration) -> Any:
    """Make a director, a view or a bridge known. The same process may do so again; a name that
    another living process has is refused. It is known until its process ends, and survives
    restarts of the hub."""
    return await hub.components.register(asked)


@router.delete("/components/{name}", response_model=Component)
async def remove_component(hub: HubPart, name: Name) -> Any:
    """Forget a component. Its process is left alone."""
    return await hub.components.remove(name)

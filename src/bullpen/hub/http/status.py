"""`/status` and `/shutdown`: the hub itself."""

import functools
import os
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request
from starlette.responses import PlainTextResponse

from bullpen.home import marker
from bullpen.hub.http.guard import actor_of, owner_only
from bullpen.hub.http.parameters import TEXT, AsText, Columns, Iso, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.render.agents import status_text
from bullpen.model.component import HubStatus, Interface, Leaving, PublicStatus, Shutdown

router = APIRouter(tags=["hub"])

Restart = Annotated[
    bool, Query(description="the next hub comes at once: connections to its ports wait for it")
]

INTERFACES: tuple[Interface, ...] = ("statusable", "observable")

# It never changes, and a file need not be read for every request.
_home_id = functools.cache(marker.home_id)

# Of the settings, what is nobody's secret.
SHOWN = {"port", "discovery", "history_limit", "stop_grace", "log_level", "worktrees"}


async def describe(hub: Hub) -> HubStatus:
    """How it is now."""
    status = hub.life.status("hub", "hub", INTERFACES, _home_id(hub.home.root), _config(hub))
    return HubStatus(
        **dict(status),
        port=hub.port,
        home=str(hub.home.root),
        agents=len(list(hub.registry)),
        running=sum(live.is_running for live in hub.registry),
        components=len(await hub.components.living()),
        settings_note=hub.settings_watch.note,
    )


@router.head("/status", include_in_schema=False)
@router.get("/status", response_model=HubStatus | PublicStatus, responses=TEXT)
async def get_status(
    hub: HubPart, request: Request, text: AsText = False, columns: Columns = 0, iso: Iso = False
) -> Any:
    """The hub as a component: what it is, its state, its last life-cycle entries, how many agents
    there are and run, how many components. Without a token only what anybody may know."""
    status = await describe(hub)
    if actor_of(request).is_anonymous:
        return status.public()
    if text:
        return PlainTextResponse(status_text(status.model_dump(), hub.registry, columns))
    return as_json(status, iso)


@router.post(
    "/shutdown",
    status_code=202,
    response_model=Leaving,
    dependencies=[Depends(owner_only)],
)
async def shut_down(
    hub: HubPart, restart: Restart = False, body: Annotated[Shutdown | None, Body()] = None
) -> Any:
    """End the hub; answered before it has left. It waits for no task: agents and their tasks go
    on in their holders, and the next hub finds them."""
    del body  # checked, and of no further use: there is nothing to wait for or to cancel
    hub.is_restarting = restart
    hub.life.note("info", "told to stop")
    hub.stop.set()
    return Leaving(message="the hub leaves; agents go on", drain_timeout=0, pid=os.getpid())


def _config(hub: Hub) -> dict[str, Any]:
    return hub.settings.model_dump(mode="json", include=SHOWN)

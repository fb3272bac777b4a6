"""`/status` and `/shutdown`: the hub itself."""

import functools
import os
import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from starlette.responses import PlainTextResponse

from bullpen import __version__, marker
from bullpen.hub.guard import actor_of, owner_only
from bullpen.hub.http.agents import TEXT, AsText
from bullpen.hub.http.state import Hub, HubPart
from bullpen.hub.render.agents import status_text
from bullpen.model.component import Leaving, PublicStatus, Shutdown, Status

router = APIRouter(tags=["hub"])

# It never changes, and a file need not be read for every request.
_home_id = functools.cache(marker.home_id)

# Of the settings, what is nobody's secret.
SHOWN = {"port", "discovery", "history_limit", "stop_grace", "log_level", "worktrees"}


class HubStatus(Status):
    """The hub as a component, and in a few figures."""

    port: int
    home: str
    agents: int
    running: int
    components: int


async def describe(hub: Hub) -> HubStatus:
    """How it is now."""
    return HubStatus(
        type="hub",
        interfaces=("statusable", "observable"),
        name="hub",
        version=__version__,
        state="draining" if hub.stop.is_set() else "idle",
        uptime_seconds=round(time.monotonic() - hub.started, 3),
        home_id=_home_id(hub.home.root),
        pid=os.getpid(),
        current_task=None,
        config=_config(hub),
        sandbox=None,
        log=hub.components.journal.entries(),
        port=hub.port,
        home=str(hub.home.root),
        agents=len(list(hub.registry)),
        running=sum(live.is_running for live in hub.registry),
        components=len(await hub.components.living()),
    )


@router.get("/status", response_model=HubStatus | PublicStatus, responses=TEXT)
async def get_status(hub: HubPart, request: Request, text: AsText = False) -> Any:
    """The hub as a component: what it is, its state, its last life-cycle entries, how many agents
    there are and run, how many components. Without a token only what anybody may know."""
    status = await describe(hub)
    if actor_of(request).is_anonymous:
        return status.public()
    if text:
        return PlainTextResponse(status_text(status.model_dump(), hub.registry))
    return status


@router.post(
    "/shutdown",
    status_code=202,
    response_model=Leaving,
    dependencies=[Depends(owner_only)],
)
async def shut_down(hub: HubPart, asked: Annotated[Shutdown | None, Body()] = None) -> Any:
    """End the hub; answered before it has left. It waits for no task: agents and their tasks go
    on in their holders, and the next hub finds them."""
    del asked  # checked, and of no further use: there is nothing to wait for or to cancel
    hub.components.journal.note("info", "told to stop")
    hub.stop.set()
    return Leaving(message="the hub leaves; agents go on", drain_timeout=0, pid=os.getpid())


def _config(hub: Hub) -> dict[str, Any]:
    return hub.settings.model_dump(mode="json", include=SHOWN)

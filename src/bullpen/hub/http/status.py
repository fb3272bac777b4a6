"""`/status` and `/shutdown`: the hub itself."""

import os
import time
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import PlainTextResponse

from bullpen import __version__
from bullpen.hub import render
from bullpen.hub.guard import owner_only
from bullpen.hub.http.agents import TEXT, AsText
from bullpen.hub.http.state import HubPart
from bullpen.model.state import Value

router = APIRouter(tags=["hub"])


class Status(Value):
    """The hub in a few figures."""

    component: str = "hub"
    version: str
    pid: int
    port: int
    home: str
    uptime_seconds: float
    agents: int
    running: int
    components: int


@router.get("/status", response_model=Status, responses=TEXT)
async def get_status(hub: HubPart, text: AsText = False) -> Any:
    """The hub in a few figures: how many agents there are, run, and how many components."""
    status = Status(
        version=__version__,
        pid=os.getpid(),
        port=hub.port,
        home=str(hub.home.root),
        uptime_seconds=round(time.monotonic() - hub.started, 3),
        agents=len(list(hub.registry)),
        running=sum(live.is_running for live in hub.registry),
        components=len(await hub.components.living()),
    )
    if text:
        return PlainTextResponse(render.status_text(status.model_dump(), hub.registry))
    return status


class Leaving(Value):
    """The process that leaves."""

    pid: int


@router.post("/shutdown", response_model=Leaving, dependencies=[Depends(owner_only)])
async def shut_down(hub: HubPart) -> Any:
    """End the hub; answered before it has left. Agents go on, the next hub finds them."""
    hub.stop.set()
    return Leaving(pid=os.getpid())

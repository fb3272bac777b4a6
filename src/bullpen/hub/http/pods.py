"""`/pods`: start one from a template, list them, stop one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from starlette.responses import StreamingResponse

from bullpen.errors import BullpenError, Kind
from bullpen.hub.guard import owner_only
from bullpen.hub.http.agents import Grace, Shown, shown
from bullpen.hub.http.state import HubPart
from bullpen.hub.pods import launch_pod, plan_pod
from bullpen.model.launch import PodLaunch
from bullpen.model.state import Value

router = APIRouter(tags=["pods"])
owner = Depends(owner_only)

PodName = Annotated[str, Path(max_length=80, pattern=r"^[a-z0-9][a-z0-9._-]*$")]


class Pod(Value):
    """A label, and the agents that share it."""

    pod: str
    agents: tuple[Shown, ...]


@router.get("/pods", response_model=list[Pod])
async def list_pods(hub: HubPart) -> Any:
    """All pods that an agent belongs to."""
    labels = sorted({live.agent.pod for live in hub.registry if live.agent.pod})
    return [
        Pod(pod=label, agents=tuple(shown(x) for x in hub.registry if x.agent.pod == label))
        for label in labels
    ]


@router.post(
    "/pods",
    dependencies=[owner],
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/x-ndjson": {}},
            "description": "progress, a JSON object per line",
        }
    },
)
async def start_pod(hub: HubPart, asked: PodLaunch) -> StreamingResponse:
    """Start all agents of a template, or none."""
    plan = await plan_pod(hub.supervisor, asked)

    async def lines() -> AsyncIterator[str]:
        async for progress in launch_pod(hub.supervisor, asked, plan):
            yield json.dumps(progress) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.delete("/pods/{name}", response_model=list[Shown], dependencies=[owner])
async def stop_pod(hub: HubPart, name: PodName, grace: Grace = None) -> Any:
    """Stop all agents of a pod."""
    members = [live for live in hub.registry if live.agent.pod == name]
    if not members:
        raise BullpenError(f"no pod called {name}", hint="bullpen pod list", kind=Kind.NOT_FOUND)
    stops = (hub.supervisor.stop(live.agent.name, grace) for live in members if live.is_running)
    results = await asyncio.gather(*stops, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [shown(live) for live in members]

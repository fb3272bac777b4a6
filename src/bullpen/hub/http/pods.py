"""`/pods`: start one from a template, list them, stop one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from starlette.responses import StreamingResponse

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.agents import shown
from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.parameters import Grace
from bullpen.hub.http.state import HubPart
from bullpen.model.agent_shown import AgentShown, PodShown
from bullpen.model.launch import PodLaunch

router = APIRouter(tags=["pods"], dependencies=[Depends(owner_only)])

PodName = Annotated[
    str, Path(max_length=80, pattern=r"^[a-z0-9][a-z0-9._-]*$", description="a pod's name")
]


@router.get("/pods", response_model=list[PodShown])
async def list_pods(hub: HubPart) -> Any:
    """All pods that an agent belongs to."""
    labels = sorted({live.agent.pod for live in hub.registry if live.agent.pod})
    return [
        PodShown(pod=label, agents=tuple(shown(x) for x in hub.registry if x.agent.pod == label))
        for label in labels
    ]


@router.post(
    "/pods",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
            "description": "progress, a JSON object per line; the last says how it ended",
        }
    },
)
async def start_pod(hub: HubPart, request: PodLaunch) -> StreamingResponse:
    """Start all agents of a template, or none; those of a sequence get their tasks one after the
    other. Everything is checked before the answer begins."""
    launching = await hub.workflows.launch(request)

    async def lines() -> AsyncIterator[str]:
        async for progress in launching.follow():
            yield json.dumps(progress) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.delete("/pods/{name}", response_model=list[AgentShown])
async def stop_pod(hub: HubPart, name: PodName, grace: Grace = None) -> Any:
    """Stop all agents of a pod, at once; answered when all are over. One that is being started
    is taken back."""
    was_starting = await hub.pods.cancel(name)
    members = [live for live in hub.registry if live.agent.pod == name]
    if not members and not was_starting:
        raise BullpenError(f"no pod called {name}", hint="bullpen pod list", kind=Kind.NOT_FOUND)
    stops = (hub.stopper.stop(live.agent.name, grace) for live in members if live.is_running)
    results = await asyncio.gather(*stops, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [shown(live) for live in members]

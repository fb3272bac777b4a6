"""`/usage` and `/metrics`: what agents have used, for people and for Prometheus."""

import asyncio
import time
from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import PlainTextResponse, Response

from bullpen.hub.guard import owner_only
from bullpen.hub.http.agents import TEXT, AsText
from bullpen.hub.http.state import HubPart
from bullpen.hub.render.prometheus import prometheus_text
from bullpen.hub.render.usage import usage_text
from bullpen.model.usage import By, Report

router = APIRouter(tags=["usage"], dependencies=[Depends(owner_only)])

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/usage", response_model=Report, responses=TEXT)
async def get_usage(
    hub: HubPart,
    by: Annotated[By, Query(description="what to add it up by")] = "agent",
    since_seconds: Annotated[
        float | None,
        Query(
            ge=0,
            le=1e12,
            allow_inf_nan=False,
            description="whole days, from that of so long ago; else everything",
        ),
    ] = None,
    text: AsText = False,
) -> Any:
    """What agents have used, those that are long gone too: tokens, cost, requests, tools, time."""
    report = await hub.usage.report(by, since_seconds, time.time())
    return PlainTextResponse(usage_text(report)) if text else report


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def get_metrics(hub: HubPart) -> Response:
    """The same, agents by their state and the number of events, in the format of Prometheus."""
    states: Counter[str] = Counter(live.view.state.state for live in hub.registry)
    events = await asyncio.to_thread(hub.store.last_id)
    used = await hub.usage.by_labels()
    approvals = len(hub.permissions.approvals.waiting())
    return Response(prometheus_text(states, approvals, events, used), media_type=PROMETHEUS)

"""`/usage` and `/metrics`: what agents have used, for people and for Prometheus."""

import time
from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import PlainTextResponse, Response

from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.parameters import TEXT, AsText, Columns, Iso, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.render.prometheus import prometheus_text
from bullpen.hub.render.usage import usage_text
from bullpen.model.usage import By, UsageReport
from bullpen.model.usage_series import SeriesBy, Step, UsageSeries

router = APIRouter(tags=["usage"], dependencies=[Depends(owner_only)])

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


Since = Annotated[
    float | None,
    Query(
        ge=0,
        le=1e12,
        allow_inf_nan=False,
        description="whole days, from that of so long ago; else everything",
    ),
]


@router.get("/usage", response_model=UsageReport, responses=TEXT)
async def get_usage(
    hub: HubPart,
    by: Annotated[By, Query(description="what to add it up by")] = "agent",
    since_seconds: Since = None,
    text: AsText = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """What agents have used, those that are long gone too: tokens, cost, requests, tools, time."""
    report = await hub.usage.report(by, since_seconds, time.time())
    return PlainTextResponse(usage_text(report, columns)) if text else as_json(report, iso)


@router.get("/usage/series")
async def get_usage_series(
    hub: HubPart,
    by: Annotated[SeriesBy, Query(description="whose series these are")] = "agent",
    step: Annotated[
        Step, Query(description="`15m` goes back 2 days, `1h` 8, `1d` 400: older is left out")
    ] = "1d",
    since_seconds: Since = None,
) -> UsageSeries:
    """Tokens and cost over time, of those that used most and of the rest together."""
    return await hub.usage.series(by, step, since_seconds, time.time())


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
    events = hub.store.last_id
    used = await hub.usage.by_labels()
    approvals = len(hub.permissions.approvals.for_person())
    return Response(prometheus_text(states, approvals, events, used), media_type=PROMETHEUS)

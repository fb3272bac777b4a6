"""`/events`: what happened, in pages and as a stream. An agent sees its own only."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from bullpen.hub.event_rows import encode
from bullpen.hub.guard import actor_of
from bullpen.hub.http.state import HubPart
from bullpen.model.event import Event, to_json
from bullpen.model.state import Value

router = APIRouter(tags=["events"])

LARGEST = 1 << 62
Own = Annotated[str | None, Query(max_length=80, description="only events of this agent")]


class Happened(Value):
    """One event."""

    id: int
    time: float
    kind: str
    agent: str
    data: dict[str, Any]


class Page(Value):
    """Events in order; `last` is where the next page begins."""

    events: tuple[Happened, ...]
    last: int


@router.get("/events", response_model=Page)
async def list_events(
    hub: HubPart,
    request: Request,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="the `last` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    agent: Own = None,
) -> Any:
    """Events after an id, oldest first; an empty page is the end for now. Agents get their own
    only, whatever they ask for."""
    own = actor_of(request).agent or agent
    found = await asyncio.to_thread(hub.store.after, after, limit, agent=own)
    page = {"events": list(map(to_json, found)), "last": found[-1].id if found else after}
    # Not by the framework, which cannot write half a surrogate: an agent's hook may hold one.
    return Response(encode(page), media_type="application/json")


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "server-sent events, without an end",
        }
    },
)
async def stream_events(
    hub: HubPart,
    request: Request,
    after: Annotated[
        int | None, Query(ge=0, le=LARGEST, description="begin after this id; else with the next")
    ] = None,
    agent: Own = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=LARGEST, description="goes on where a stream broke off")
    ] = None,
) -> StreamingResponse:
    """Events as they happen. An event's name is its kind, its data the same JSON as in pages.
    When nothing happens a comment comes every 15 seconds. `reset` says that the id to go on from
    is not of this history. Agents get their own events only."""
    own = actor_of(request).agent or agent
    start = last_event_id if last_event_id is not None else after

    def wanted(event: Event) -> bool:
        return event.agent == own

    stream = hub.feed.stream(start, wanted if own else None)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

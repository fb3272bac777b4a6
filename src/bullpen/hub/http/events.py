"""`/events`: what happened, in pages and as a stream. An agent sees its own only."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from bullpen.hub.http.guard import actor_of, owner_only
from bullpen.hub.http.state import HubPart
from bullpen.hub.store.events import encode, list_after, list_before, walk_back
from bullpen.model.event import to_json
from bullpen.model.event_page import EventPage
from bullpen.model.timeline import Timeline, make_timeline

router = APIRouter(tags=["events"])

LARGEST = 1 << 62
Own = Annotated[str | None, Query(max_length=80, description="only events of this agent")]


@router.get("/events", response_model=EventPage)
async def list_events(
    hub: HubPart,
    request: Request,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="the `last` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    agent: Own = None,
    before: Annotated[
        int | None,
        Query(ge=1, le=LARGEST, description="backwards: the newest below this id, newest first"),
    ] = None,
) -> Any:
    """Events after an id, oldest first; an empty page is the end for now. With `before` the newest
    below that id, and `last` is the `before` of the next page. Agents get their own only, whatever
    they ask for."""
    own = actor_of(request).agent or agent
    if before is not None:
        events = await hub.store.read(list_before(before, limit, agent=own))
    else:
        events = await hub.store.read(list_after(after, limit, agent=own))
    page = {"events": list(map(to_json, events)), "last": events[-1].id if events else after}
    # Not by the framework, which cannot write half a surrogate: an agent's hook may hold one.
    return Response(encode(page), media_type="application/json")


@router.get("/timeline", response_model=Timeline, dependencies=[Depends(owner_only)])
async def get_timeline(
    hub: HubPart,
    since_seconds: Annotated[
        float, Query(ge=0, le=1e12, allow_inf_nan=False, description="how far back")
    ] = 3600,
) -> Any:
    """Who came into which state when, in the last so many seconds."""
    since = time.time() - since_seconds
    timeline = await hub.store.read(
        lambda database: make_timeline(walk_back(database, {"agent.state"}), since)
    )
    return Response(encode(timeline.model_dump()), media_type="application/json")


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
    stream = hub.feed.stream(start, own or None)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

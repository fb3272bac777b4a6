"""`/events`: what happened, in pages and as a stream. An agent sees its own only."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from bullpen.hub.guard import actor_of
from bullpen.hub.http.state import HubPart
from bullpen.model.event import Event
from bullpen.model.state import Value

router = APIRouter(tags=["events"])

Id = Annotated[int, Query(ge=0, le=1 << 62)]


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
    after: Id = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    agent: Annotated[str | None, Query(max_length=80)] = None,
) -> Any:
    """Events after an id."""
    own = actor_of(request).agent or agent
    found = await asyncio.to_thread(hub.store.after, after, limit, agent=own)
    events = tuple(
        Happened(id=e.id, time=e.time, kind=e.kind, agent=e.agent, data=e.data) for e in found
    )
    return Page(events=events, last=events[-1].id if events else after)


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_events(
    hub: HubPart,
    request: Request,
    after: Annotated[int | None, Query(ge=0, le=1 << 62)] = None,
    agent: Annotated[str | None, Query(max_length=80)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=1 << 62)] = None,
) -> StreamingResponse:
    """Events as they happen; `Last-Event-ID` goes on where a broken stream ended."""
    own = actor_of(request).agent or agent
    start = last_event_id if last_event_id is not None else after

    def wanted(event: Event) -> bool:
        return event.agent == own

    stream = hub.feed.stream(start, wanted if own else None)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

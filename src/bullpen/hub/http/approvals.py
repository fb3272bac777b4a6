"""`/approvals`: what waits for a person, and their answers; and how an engine asks."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import PlainTextResponse

from bullpen.errors import BullpenError, Kind
from bullpen.hub.guard import owner_only, owner_or_self
from bullpen.hub.http.agents import Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.permissions import Given
from bullpen.model.approval import Approval
from bullpen.model.state import Value

router = APIRouter(tags=["approvals"])
owner = Depends(owner_only)
itself = Depends(owner_or_self)

DAY_SECONDS = 86400.0


class Inbox(Value):
    """Those that wait, the oldest first; with `all` also those that ended last."""

    approvals: tuple[Approval, ...]


@router.get("/approvals", response_model=Inbox, dependencies=[owner])
async def list_approvals(
    hub: HubPart,
    everything: Annotated[
        bool, Query(alias="all", description="also those that were decided lately")
    ] = False,
) -> Any:
    """What waits for a decision. `reachable`: it can be answered here; else only in the agent's
    terminal. Changes are the events `approval.asked` and `approval.answered`."""
    approvals = hub.permissions.approvals
    return Inbox(approvals=tuple(approvals if everything else approvals.waiting()))


@router.post("/approvals/{id}", response_model=Approval, dependencies=[owner])
async def answer_approval(
    hub: HubPart,
    id: Annotated[int, Path(ge=1, le=1 << 53, description="an approval's number")],
    given: Given,
) -> Any:
    """Allow or deny. The first answer wins; a later one is a conflict that says who was first.
    `always` also adds a rule for exactly the same to the agent's settings, `role` to its role."""
    return await hub.permissions.answer(id, given)


@router.post(
    "/agents/{name}/permission",
    dependencies=[itself],
    response_class=PlainTextResponse,
    openapi_extra={
        "requestBody": {
            "description": "what the engine hands to its hook, unchanged",
            "content": {"application/json": {"schema": {}}},
        }
    },
)
async def ask_permission(
    hub: HubPart,
    name: Name,
    request: Request,
    ask: Annotated[
        str,
        Query(
            pattern=r"^[A-Za-z0-9_-]{8,64}$",
            description="names the question: asked again it is the same one",
        ),
    ],
    at: Annotated[
        float | None,
        Query(ge=0, allow_inf_nan=False, description="when it was first asked; else now"),
    ] = None,
) -> str:
    """A permission that the engine's own rules do not decide. Answered when it is decided, which
    may take a day: with the engine's own form of the decision, or with nothing."""
    live = hub.registry.get(name)
    body = await request.body()
    now = time.time()
    asked = now if at is None else min(now, max(at, now - DAY_SECONDS))
    work = asyncio.create_task(hub.permissions.decide(live, ask, body, asked))
    gone = asyncio.create_task(_disconnected(request))
    left = asyncio.create_task(hub.permissions.left.wait())
    try:
        await asyncio.wait({work, gone, left}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if left.done():
            raise BullpenError("the hub stops", hint="ask again", kind=Kind.UNAVAILABLE)
        return ""  # to nobody
    finally:
        for task in (work, gone, left):
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""`/approvals`: what waits for a person, and their answers; and how an engine asks."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import PlainTextResponse, Response

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.agents import shown
from bullpen.hub.http.errors import TOO_MUCH
from bullpen.hub.http.guard import actor_of, owner_only, owner_or_self
from bullpen.hub.http.parameters import TEXT, AsText, Columns, Iso, Name, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.permissions.questions import Answers, answer_questions
from bullpen.hub.render.approvals import approvals_text
from bullpen.hub.store.events import encode
from bullpen.model.approval import Approval, ApprovalAnswer, ApprovalList, WholeApproval
from bullpen.model.state import Blocked

router = APIRouter(tags=["approvals"])
owner = Depends(owner_only)
itself = Depends(owner_or_self)

DAY_SECONDS = 86400.0
Number = Annotated[int, Path(ge=1, le=1 << 53, description="an approval's number")]


@router.get("/approvals", response_model=ApprovalList, responses=TEXT, dependencies=[owner])
async def list_approvals(
    hub: HubPart,
    everything: Annotated[
        bool, Query(alias="all", description="also those that were decided lately")
    ] = False,
    text: AsText = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """What waits for a decision. `reachable`: it can be answered here; else only in the agent's
    terminal. `text` is the beginning; with `more` read the whole before you allow it. What shows
    nothing is written as `⟨U+202E⟩` in it, and in `questions`, which have answers instead of yes
    and no. `rule.wider` says what a rule would allow beside this.
    Changes are the events `approval.asked` (without `text` if it may hold a credential) and
    `approval.answered`."""
    approvals = hub.permissions.approvals
    listed = tuple(approvals if everything else approvals.waiting())
    if text:
        agents = [shown(live) for live in hub.registry if isinstance(live.view.state, Blocked)]
        return PlainTextResponse(approvals_text(listed, agents, columns, time.time()))
    return as_json(ApprovalList(approvals=listed), iso)


@router.get("/approvals/{id}", response_model=WholeApproval, dependencies=[owner])
async def get_approval(hub: HubPart, id: Number) -> Any:
    """All that one is about, while it waits: `text` whole, and `input` as the engine gave it."""
    approval = await hub.permissions.approvals.whole(id)
    # Not by the framework: `input` may hold half a surrogate, and what reorders a line.
    data = await asyncio.to_thread(lambda: encode(approval.model_dump(mode="json")))
    return Response(data, media_type="application/json")


@router.post("/approvals/{id}", response_model=Approval, dependencies=[owner])
async def answer_approval(hub: HubPart, id: Number, given: ApprovalAnswer) -> Any:
    """Allow or deny. The first answer wins; a later one is a conflict that says who was first.
    `always` also adds a rule for exactly the same to the agent's settings, `role` to its role. A
    question can be denied, but not just allowed."""
    return await hub.permissions.answer(id, given)


@router.post("/approvals/{id}/answers", response_model=Approval, dependencies=[owner])
async def answer_agent(hub: HubPart, id: Number, given: Answers) -> Any:
    """Answer the `questions` of an agent. The first answer wins, here or in its terminal; a later
    one is a conflict that says who was first."""
    return await answer_questions(hub.permissions.approvals, id, given)


@router.post(
    "/agents/{name}/permission",
    dependencies=[itself],
    response_class=PlainTextResponse,
    responses={429: TOO_MUCH},
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
    hub.quotas.spend(actor_of(request).agent, {"questions": 1})
    body = await request.body()
    now = time.time()
    asked_at = now if at is None else min(now, max(at, now - DAY_SECONDS))
    work = asyncio.create_task(hub.permissions.decide(live, ask, body, asked_at))
    gone = asyncio.create_task(_disconnected(request))
    hub_stops = asyncio.create_task(hub.permissions.hub_stops.wait())
    try:
        await asyncio.wait({work, gone, hub_stops}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if hub_stops.done():
            raise BullpenError("the hub stops", hint="ask again", kind=Kind.UNAVAILABLE)
        return ""  # to nobody
    finally:
        for task in (work, gone, hub_stops):
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

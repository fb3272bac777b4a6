"""`/escalations`: what a director leaves to a person. Which director that is, its token says."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from bullpen.hub.http.errors import TOO_MUCH
from bullpen.hub.http.guard import actor_of, director_only
from bullpen.hub.http.state import HubPart
from bullpen.hub.permissions.escalations import Escalation
from bullpen.model.approval import Approval

router = APIRouter(tags=["approvals"], dependencies=[Depends(director_only)])

EscalationName = Annotated[
    str, Path(pattern=r"^[0-9a-f]{32}$", description="a director's own name for it")
]


@router.put("/escalations/{name}", response_model=Approval, responses={429: TOO_MUCH})
async def open_escalation(
    hub: HubPart, request: Request, name: EscalationName, given: Escalation
) -> Any:
    """Ask a person. The same name is the same question, however often it is sent. It is listed
    below `/approvals`, as of the director; allowed means: try again."""
    director = actor_of(request).director
    hub.quotas.spend(f"director {director}", {"questions": 1})
    return await hub.escalations.open(director, name, given)


@router.get("/escalations/{name}", response_model=Approval)
async def get_escalation(hub: HubPart, request: Request, name: EscalationName) -> Any:
    """How a question of the director stands, and what a person has answered."""
    return await hub.escalations.get(actor_of(request).director, name)


@router.delete("/escalations/{name}", response_model=Approval)
async def withdraw_escalation(hub: HubPart, request: Request, name: EscalationName) -> Any:
    """Nobody has to decide it any more. One that has ended stays as it ended."""
    return await hub.escalations.withdraw(actor_of(request).director, name)

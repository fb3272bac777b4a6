"""`/gc`: remove what ended agents left."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from bullpen.hub.guard import owner_only
from bullpen.hub.http.state import HubPart
from bullpen.hub.sweep import sweep
from bullpen.model.gc import Swept

router = APIRouter(tags=["gc"])


class Wanted(BaseModel):
    """What may go."""

    model_config = ConfigDict(extra="forbid")

    older_than_seconds: Annotated[
        float, Field(ge=0, le=1e10, allow_inf_nan=False, description="since the agent has ended")
    ] = 7 * 86400.0
    dry_run: Annotated[bool, Field(description="only say what would go and stay")] = False
    force: Annotated[bool, Field(description="worktrees with unmerged work, too")] = False


@router.post("/gc", response_model=Swept, dependencies=[Depends(owner_only)])
async def collect(hub: HubPart, wanted: Wanted) -> Any:
    """Remove sessions and clean, merged worktrees of agents that have ended; or say what would."""
    return await sweep(
        hub.supervisor, wanted.older_than_seconds, force=wanted.force, dry_run=wanted.dry_run
    )

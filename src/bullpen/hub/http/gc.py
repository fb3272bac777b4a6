"""`/gc`: remove what ended agents left."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.state import HubPart

router = APIRouter(tags=["gc"])


class GcRequest(BaseModel):
    """What may go."""

    model_config = ConfigDict(extra="forbid")

    older_than_seconds: Annotated[
        float, Field(ge=0, le=1e10, allow_inf_nan=False, description="since the agent has ended")
    ] = 7 * 86400.0
    dry_run: Annotated[bool, Field(description="only say what would go and stay")] = False
    force: Annotated[bool, Field(description="worktrees with unmerged work, too")] = False


@router.post(
    "/gc",
    dependencies=[Depends(owner_only)],
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
            "description": "progress, a JSON object per line; the last is the result",
        }
    },
)
async def collect(hub: HubPart, wanted: GcRequest) -> StreamingResponse:
    """Remove sessions and clean, merged worktrees of agents that have ended; or say what would."""

    async def lines() -> AsyncIterator[str]:
        async for step in hub.gc.collect(
            wanted.older_than_seconds, force=wanted.force, dry_run=wanted.dry_run
        ):
            yield step.model_dump_json() + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")

"""`/fleet`: the machines of the fleet, and how this one stands to it."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse

from bullpen.hub.http.parameters import TEXT, AsText, Columns, Iso, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.render.fleet import agents_text, hosts_text
from bullpen.model.fleet import FleetShown

router = APIRouter(tags=["fleet"])


@router.get("/fleet", response_model=FleetShown, responses=TEXT)
async def get_fleet(
    hub: HubPart,
    agents: Annotated[bool, Query(description="with `text`: agents, not hosts")] = False,
    text: AsText = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """All machines of the fleet with their agents. Without its server, or of a host that cannot be
    reached, as they were last heard of."""
    shown = await hub.fleet.show()
    if text:
        write = agents_text if agents else hosts_text
        note = hub.settings_watch.note  # why the block that was just written does not count
        lines = write(shown, time.time(), columns) + (f"{note}\n" if note and not agents else "")
        return PlainTextResponse(lines)
    return as_json(shown, iso)

"""`/landings`: the queues in which agents' work lands in a branch. The owner's alone."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.state import HubPart
from bullpen.model.landing import Landing, LandingList, LandingOutput, LandingRequest

router = APIRouter(tags=["landings"])
owner = Depends(owner_only)

MOST_WAIT_SECONDS = 300


@router.get("/landings", response_model=LandingList, dependencies=[owner])
async def list_landings(
    hub: HubPart,
    everything: Annotated[
        bool, Query(alias="all", description="also those that were over lately")
    ] = False,
) -> Any:
    """What waits to land, is landing, or came back to its author. Changes are the events
    `landing.state`."""
    return LandingList(landings=tuple(await hub.landings.find(everything=everything)))


@router.post("/landings", response_model=LandingList, dependencies=[owner])
async def land(hub: HubPart, request: LandingRequest) -> Any:
    """Put the work of agents into the queue of its target branch, all or none. Each entry names
    the commit that lands: the tip of its branch now. What is in the queue already stays one
    entry."""
    return LandingList(landings=tuple(await hub.landings.ask(request)))


@router.get("/landings/{id}", response_model=Landing, dependencies=[owner])
async def get_landing(
    hub: HubPart,
    id: Annotated[str, Path(max_length=64, description="of the entry: `l-3f2a91c4`")],
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=MOST_WAIT_SECONDS,
            allow_inf_nan=False,
            description="seconds to wait until nothing more happens to it by itself",
        ),
    ] = 0.0,
) -> Any:
    """One entry, over or not."""
    return await hub.landings.get(id, wait)


@router.get("/landings/{id}/output", response_model=LandingOutput, dependencies=[owner])
async def get_landing_output(
    hub: HubPart, id: Annotated[str, Path(max_length=64, description="of the entry")]
) -> Any:
    """What the command that verifies it has written, the last 64 KiB of it, also while it runs.
    Entries that are tried together have one output."""
    return LandingOutput(output=await hub.landings.read_output(id))


@router.delete("/landings/{name}", response_model=LandingList, dependencies=[owner])
async def cancel_landing(
    hub: HubPart, name: Annotated[str, Path(max_length=250, description="or its id")]
) -> Any:
    """Take the entries of an agent out of their queues. The command that verifies one is ended; one
    whose target is being moved stays."""
    return LandingList(landings=tuple(await hub.landings.cancel(name)))

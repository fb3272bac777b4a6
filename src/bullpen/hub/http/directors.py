"""`/directors`: how they stand, and who may give tasks: the owner lets one in, by the hash of a
token."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import ConfigDict, Field

from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.state import HubPart
from bullpen.model.director import DirectorLetIn, DirectorShown
from bullpen.model.names import NAME
from bullpen.model.value import Value

router = APIRouter(tags=["directors"], dependencies=[Depends(owner_only)])

DirectorName = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="a director's name")]


class DirectorToken(Value):
    """By its hash: the token itself stays where it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_hash: Annotated[
        str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the token, in hex")
    ]


@router.get("/directors", response_model=list[DirectorShown])
async def list_directors(hub: HubPart) -> Any:
    """All directors that have a file or are let in, by name: whether each runs, waits for its
    restart after a crash, or is gone, and what is wrong with its file."""
    return await hub.directors.list()


@router.put("/directors/{name}", response_model=DirectorLetIn)
async def admit_director(hub: HubPart, name: DirectorName, body: DirectorToken) -> Any:
    """Let a director in. Its token may give tasks, read, steer and cancel those, and ask a person.
    An earlier token of that director counts no more."""
    return await hub.directors.admit(name, body.token_hash)


@router.delete("/directors/{name}", response_model=DirectorLetIn)
async def revoke_director(hub: HubPart, name: DirectorName) -> Any:
    """Its token counts no more. Tasks that it gave go on."""
    return await hub.directors.revoke(name)

"""`/worktrees`: those of one repository, as `bullpen worktree list` shows them."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import PlainTextResponse, Response

from bullpen import clock, worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.worktrees import bases_of, open_site
from bullpen.hub.http.guard import owner_only
from bullpen.hub.http.parameters import TEXT, AsText, Colour, Columns, Iso
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.model.worktree_shown import WorktreeList
from bullpen.sandboxes.inside import bring_over_all
from bullpen.worktrees.list_text import Rows

# The owner's alone: an agent behind a sandbox would learn of repositories that it cannot see.
router = APIRouter(tags=["worktrees"], dependencies=[Depends(owner_only)])

Directory = Annotated[
    str,
    Query(
        max_length=4096,
        pattern="^/[^\\x00]*$",
        description="a directory in the repository, from the root: the hub stands elsewhere",
    ),
]


@router.get("/worktrees", response_model=WorktreeList, responses=TEXT)
async def list_worktrees(
    hub: HubPart,
    repo: Directory,
    text: AsText = False,
    colour: Colour = False,
    columns: Columns = 0,
    iso: Iso = False,
) -> Any:
    """The worktrees of the repository that holds this directory: branches, what is not committed,
    how far they are from their base. What sandboxed agents committed is brought over before."""
    # No look that began earlier is shared: who made a worktree just now has to find it.
    rows, failures = await hub.context.trees.run(f"repository {repo}", partial(_look, hub, repo))
    if failures and (text or iso):
        # The command says it on its other output, for which there is no room here.
        name, why = next(iter(failures.items()))
        raise BullpenError(f"{name}: its commits were not brought over: {why}", kind=Kind.CONFLICT)
    if text:
        return PlainTextResponse(worktrees.list_text(rows, colour=colour, columns=columns))
    fields = worktrees.list_fields(rows)
    if iso:
        return Response(json.dumps({"worktrees": fields}), media_type="application/json")
    return WorktreeList(worktrees=_shown(fields), not_brought_over=_shown(failures))


def _look(hub: Hub, repo: str) -> tuple[Rows, dict[str, str]]:
    site = open_site(hub.home, hub.settings, Path(repo))
    failures = bring_over_all(site.repo)
    bases = bases_of(live.agent for live in hub.registry)
    return worktrees.describe_everywhere(site, bases), failures


def _shown(value: Any) -> Any:
    """As JSON of the API has it: times are numbers, and what is no text in a file's name shows."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_shown(each) for each in value]
        case {"created_at": str(moment)}:
            return _shown({**value, "created_at": clock.from_text(moment).timestamp()})
        case dict():
            return {name: _shown(each) for name, each in value.items()}
        case _:
            return value

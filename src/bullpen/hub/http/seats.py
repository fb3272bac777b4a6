"""Agents that take tasks, as components: `/status`, `/shutdown` and `/config` of each."""

import asyncio
import functools
import os
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from pydantic import Field

from bullpen import marker
from bullpen.errors import BullpenError, Kind
from bullpen.hub.guard import actor_of, owner_only, owner_or_self
from bullpen.hub.http.agents import Name
from bullpen.hub.http.state import Hub, HubPart
from bullpen.hub.seat_files import shown_config
from bullpen.model.component import DRAIN_SECONDS, Leaving, PublicStatus, Shutdown, Status
from bullpen.model.state import Value

router = APIRouter(tags=["agents"])
owner = Depends(owner_only)

_home_id = functools.cache(marker.home_id)


class Config(Value):
    """An agent's file; of its variables the names only, of its sandbox what the file says."""

    config: dict[str, Any]
    has_file: bool


class Configured(Config):
    """The same after a change: what holds from the next task on, and what from the next start."""

    live: tuple[str, ...]
    restart: tuple[str, ...]
    comments_dropped: Annotated[
        bool, Field(description="the file had comments; it is written anew, without them")
    ]


NewConfig = Annotated[
    dict[str, Any],
    Body(
        description="a whole file for the agent. `env`: missing, all variables stay as they are; "
        "a list of names keeps those; in an object null keeps a value",
        examples=[{"role": "coder", "claude": {"timeout": "10m"}}],
    ),
]


@router.get(
    "/agents/{name}/status",
    response_model=Status | PublicStatus,
)
async def get_agent_status(hub: HubPart, request: Request, name: Name) -> Any:
    """An agent that takes tasks, as a component. Without a token only what anybody may know."""
    _headless(hub, name)
    status = await hub.seats.status(name, _home_id(hub.home.root))
    actor = actor_of(request)
    is_trusted = actor.is_owner or actor.agent == name
    return status if is_trusted else status.public()


@router.post(
    "/agents/{name}/shutdown", status_code=202, response_model=Leaving, dependencies=[owner]
)
async def shut_agent_down(
    hub: HubPart, name: Name, asked: Annotated[Shutdown | None, Body()] = None
) -> Any:
    """No more tasks; the one that runs is waited for, then the agent leaves. What still runs at
    the end of that time goes on to its end, or is cancelled with `force`. Without a body it is
    refused while there is a task."""
    _headless(hub, name)
    wanted = asked or Shutdown()
    task = hub.tasks.current(name)
    if task is not None and not wanted.model_fields_set:
        raise BullpenError(
            f"{name} has a task: {task.id} is {task.state}",
            hint="say how long it may go on: timeout_seconds, and force to cancel it then",
            kind=Kind.CONFLICT,
            details={"error": "task_in_progress", "task_id": task.id},
        )
    seconds = DRAIN_SECONDS if wanted.timeout_seconds is None else wanted.timeout_seconds
    await hub.seats.shut_down(name, seconds, force=wanted.force)
    return Leaving(message=f"{name} leaves", drain_timeout=seconds, pid=os.getpid())


@router.get("/agents/{name}/config", response_model=Config, dependencies=[Depends(owner_or_self)])
async def get_agent_config(hub: HubPart, name: Name) -> Any:
    """What its file says, with what it does not say filled in; can be sent back with a change."""
    _headless(hub, name)
    file, has_file = await asyncio.to_thread(hub.seats.load_file, name)
    return Config(config=shown_config(file), has_file=has_file)


@router.put("/agents/{name}/config", response_model=Configured, dependencies=[owner])
async def set_agent_config(hub: HubPart, name: Name, asked: NewConfig) -> Any:
    """Write its file, after checking it as a whole; if anything is wrong, nothing is written. Most
    of it holds from the next task on; the answer says what needs a new start."""
    _headless(hub, name)
    try:
        done = await hub.seats.configure(name, asked)
    except BullpenError as error:
        raise _about_fields(error) from error
    return Configured(
        config=shown_config(done.file),
        has_file=True,
        live=done.live,
        restart=done.restart,
        comments_dropped=done.had_comments,
    )


def _about_fields(error: BullpenError) -> BullpenError:
    """The same of what was sent: lines are those of a file that nobody has written."""
    found = error.details.get("problems")
    if not isinstance(found, list):
        return error
    problems = [f"{each['key'] or 'body'}: {each['message']}" for each in found]
    return BullpenError(
        "; ".join(problems), hint=error.hint, kind=error.kind, details={"problems": problems}
    )


def _headless(hub: Hub, name: str) -> None:
    if hub.registry.get(name).agent.kind != "headless":
        raise BullpenError(
            f"{name} works in a terminal: it is no component of its own",
            hint=f"bullpen status {name}",
            kind=Kind.CONFLICT,
        )

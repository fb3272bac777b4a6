"""Agents that take tasks, as components: `/status`, `/shutdown` and `/config` of each."""

import asyncio
import functools
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request

from bullpen.component.lifecycle import plan_leaving
from bullpen.errors import BullpenError, Kind
from bullpen.home import marker
from bullpen.hub.http.guard import actor_of, owner_only, owner_or_self
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.tasks.agent_config import shown_config
from bullpen.model.component import (
    AgentConfig,
    AgentConfigured,
    Leaving,
    PublicStatus,
    Shutdown,
    Status,
)

router = APIRouter(tags=["agents"])
owner = Depends(owner_only)

_home_id = functools.cache(marker.home_id)


NewConfig = Annotated[
    dict[str, Any],
    Body(
        description="a whole file for the agent. `env`: missing, all variables stay as they are; "
        "a list of names keeps those; in an object null keeps a value",
        examples=[{"role": "coder", "claude": {"timeout": "10m"}}],
    ),
]


@router.head("/agents/{name}/status", include_in_schema=False)
@router.get(
    "/agents/{name}/status",
    response_model=Status | PublicStatus,
)
async def get_agent_status(hub: HubPart, request: Request, name: Name) -> Any:
    """An agent that takes tasks, as a component. Without a token only what anybody may know."""
    _headless(hub, name)
    status = await hub.task_agents.status(name, _home_id(hub.home.root))
    actor = actor_of(request)
    is_trusted = actor.is_owner or actor.agent == name
    return status if is_trusted else status.public()


@router.post(
    "/agents/{name}/shutdown", status_code=202, response_model=Leaving, dependencies=[owner]
)
async def shut_agent_down(
    hub: HubPart, name: Name, body: Annotated[Shutdown | None, Body()] = None
) -> Any:
    """No more tasks; the one that runs is waited for, then the agent leaves. What still runs at
    the end of that time goes on to its end, or is cancelled with `force`. Without a body it is
    refused while there is a task."""
    _headless(hub, name)
    task = hub.tasks.current(name)
    leaving = plan_leaving(name, body, (task.id, task.state) if task is not None else None)
    force = body is not None and body.force
    await hub.task_agents.shut_down(name, leaving.drain_timeout, force=force)
    return leaving


@router.get(
    "/agents/{name}/config", response_model=AgentConfig, dependencies=[Depends(owner_or_self)]
)
async def get_agent_config(hub: HubPart, name: Name) -> Any:
    """What its file says, with what it does not say filled in; can be sent back with a change."""
    _headless(hub, name)
    file, has_file = await asyncio.to_thread(hub.task_agents.load_file, name)
    return AgentConfig(config=shown_config(file), has_file=has_file)


@router.put("/agents/{name}/config", response_model=AgentConfigured, dependencies=[owner])
async def set_agent_config(hub: HubPart, name: Name, body: NewConfig) -> Any:
    """Write its file, after checking it as a whole; if anything is wrong, nothing is written. Most
    of it holds from the next task on; the answer says what needs a new start."""
    _headless(hub, name)
    try:
        done = await hub.task_agents.configure(name, body)
    except BullpenError as error:
        raise _about_fields(error) from error
    return AgentConfigured(
        config=shown_config(done.file),
        has_file=True,
        live=done.live,
        restart=done.restart,
        comments_dropped=done.drops_comments,
    )


def _about_fields(error: BullpenError) -> BullpenError:
    """The same of what was sent: lines are those of a file that nobody has written."""
    rows = error.details.get("problems")
    if not isinstance(rows, list):
        return error
    problems = [f"{each['key'] or 'body'}: {each['message']}" for each in rows]
    return BullpenError(
        "; ".join(problems), hint=error.hint, kind=error.kind, details={"problems": problems}
    )


def _headless(hub: Hub, name: str) -> None:
    if not hub.registry.get(name).agent.takes_tasks:
        raise BullpenError(
            f"{name} works in a terminal, and takes no tasks",
            hint=f'bullpen send {name} "…" · for tasks: bullpen agent start NAME --role ROLE',
            kind=Kind.CONFLICT,
        )

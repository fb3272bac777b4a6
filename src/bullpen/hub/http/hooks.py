"""`/agents/{name}/hooks`: what an engine's hooks tell, and what they are answered."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import PlainTextResponse

from bullpen.engines import get_engine
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.http.errors import TOO_MUCH
from bullpen.hub.http.guard import actor_of, owner_or_self
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import HubPart
from bullpen.model.state import EngineReport, Working

router = APIRouter(tags=["agents"])
itself = Depends(owner_or_self)


@router.post(
    "/agents/{name}/hooks",
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
async def receive_hook(hub: HubPart, name: Name, request: Request) -> str:
    """A hook of its engine. Never an error for what is in it: a body that is no JSON is noted as
    such. Of its contents only names, ids and 200 characters of text are kept."""
    live = hub.registry.get(name)
    try:
        hub.quotas.spend(actor_of(request).agent, {"hooks": 1})
    except BullpenError:
        # Who may do nothing more is told so also then: without an answer its tool would run.
        reason = hub.budgets.refusal(name)
        hook = await asyncio.to_thread(_hook_in, await request.body()) if reason else {}
        if refused := _refused(live, hook, reason):
            return refused
        raise
    hook = await hub.hooks.receive(live, await request.body())
    await hub.rate_limits.hooked(live, hook)
    reason = hub.budgets.refusal(name)
    if reason:
        return _refused(live, hook, reason)
    await _wait_for_tools(live, hook)
    reminder = await hub.children.hooked(live, hook)
    if reminder:
        at = max(time.time(), live.view.told_at)
        goes_on = Working(doing="thinking")
        report = EngineReport(at=at, source="reminder", says="goes on", state=goes_on)
        await hub.observer.observe(live, report)
    return reminder or await hub.delivery.hooked(live, hook)


async def _wait_for_tools(live: LiveAgent, hook: Mapping[str, Any]) -> None:
    """Its first prompt goes on when its program has been given the list of its tools."""
    engine = get_engine(live.agent.engine)
    if engine.tools_seconds and engine.prompt_of(hook) and live.agent.role:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(engine.tools_seconds):
                await live.has_tools.wait()
        live.has_tools.set()  # once, whatever happens


def _refused(live: LiveAgent, hook: Mapping[str, Any], reason: str) -> str:
    event = str(hook.get("hook_event_name", ""))
    return get_engine(live.agent.engine).refuse(event, reason) if reason else ""


def _hook_in(body: bytes) -> dict[str, Any]:
    try:
        hook = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return hook if isinstance(hook, dict) else {}

"""`/v1/metrics`, `/v1/logs`, `/v1/traces`: telemetry of an agent's program, in OTLP."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.errors import TOO_MUCH
from bullpen.hub.http.guard import actor_of
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.usage import otlp
from bullpen.model.agent import Agent

router = APIRouter(tags=["telemetry"])

T = TypeVar("T")

LARGE_BYTES = 1 << 14  # reading more than that would hold the others up
CONTENT: dict[str, Any] = {kind: {"schema": {}} for kind in otlp.FORMS}
DESCRIBED: dict[str, Any] = {
    "response_class": Response,
    "responses": {
        200: {"description": "taken, in the form of the request", "content": CONTENT},
        429: TOO_MUCH,
    },
    "openapi_extra": {"requestBody": {"description": "OTLP, perhaps gzip", "content": CONTENT}},
}


@router.post("/v1/metrics", **DESCRIBED)
async def take_metrics(hub: HubPart, request: Request) -> Response:
    """Tokens and cost of the agent whose token it is; what an export says of itself does not
    count. The same export may come again. Figures that cannot be are left out, and the answer says
    how many."""
    agent = _reporter(hub, request)
    form, metrics = await _read(request, otlp.read_metrics)
    rejected = await hub.usage.take_metrics(agent, metrics)
    return _answer(form, otlp.answer(form, rejected))


@router.post("/v1/logs", **DESCRIBED)
async def take_logs(hub: HubPart, request: Request) -> Response:
    """Requests and tool calls of the agent whose token it is. The same export may come again."""
    agent = _reporter(hub, request)
    form, records = await _read(request, otlp.read_logs)
    await hub.usage.take_logs(agent, records)
    return _answer(form, otlp.answer(form))


@router.post("/v1/traces", **DESCRIBED)
async def take_traces(hub: HubPart, request: Request) -> Response:
    """Accepted, so that a program that sends them has no errors, and dropped."""
    _reporter(hub, request)
    form, _ = await _read(request, otlp.refuse_bad_traces)
    return _answer(form, otlp.answer(form))


def _reporter(hub: Hub, request: Request) -> Agent:
    """The agent that reports: the one whose credential it is."""
    name = actor_of(request).agent
    if not name:
        raise BullpenError("telemetry is taken from agents, with their token", kind=Kind.DENIED)
    hub.quotas.spend(name, {"telemetry": 1})
    return hub.registry.get(name).agent


async def _read(request: Request, reader: Callable[[bytes, otlp.Form], T]) -> tuple[otlp.Form, T]:
    body = await request.body()
    form = otlp.form_of(request.headers.get("content-type", ""))
    encoding = request.headers.get("content-encoding", "")

    def work() -> T:
        return reader(otlp.unpacked(body, encoding), form)

    is_large = encoding or len(body) > LARGE_BYTES
    return form, await asyncio.to_thread(work) if is_large else work()


def _answer(form: otlp.Form, body: bytes) -> Response:
    kind = next(kind for kind, name in otlp.FORMS.items() if name == form)
    return Response(body, media_type=kind)

"""`/agents/{name}/mcp`: the tools of an agent, over MCP. `hub/mcp` serves what is let in here."""

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.guard import agent_itself
from bullpen.hub.http.parameters import Name

router = APIRouter(tags=["agents"])
CONTENT: dict[str, Any] = {"application/json": {"schema": {}}}


class Handed(Response):
    """The answer is another application's, which reads the request itself."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


@router.post(
    "/agents/{name}/mcp",
    dependencies=[Depends(agent_itself)],
    response_class=Response,
    responses={
        200: {"description": "an answer in JSON-RPC", "content": CONTENT},
        202: {"description": "a notification was taken", "content": CONTENT},
        406: {"description": "`Accept` names not both of JSON and an event stream"},
    },
    openapi_extra={"requestBody": {"description": "JSON-RPC of MCP", "content": CONTENT}},
)
async def call_tools(name: Name, request: Request) -> Response:
    """Tools of the agent whose credential it is, over MCP (streamable HTTP without sessions). They
    act as that agent; not even the owner may use them in its place. A call that waits is open for
    as long as it waits; sent again with the same `Bullpen-Request`, it happens once."""
    tools: ASGIApp | None = request.app.state.tools
    if tools is None:
        raise BullpenError(f"{name} has no tools yet", kind=Kind.UNAVAILABLE)
    return Handed(tools)

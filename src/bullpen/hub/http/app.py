"""The application: its routes, and what is the same for all of them."""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from bullpen import __version__
from bullpen.errors import BullpenError
from bullpen.hub.http import (
    agents,
    approvals,
    changes,
    components,
    directors,
    docs,
    errors,
    escalations,
    events,
    fleet,
    gc,
    hooks,
    landings,
    mcp,
    messages,
    otlp,
    pods,
    status,
    task_agents,
    tasks,
    terminal,
    transcripts,
    tree,
    usage,
    worktrees,
)
from bullpen.hub.parts import Hub

DESCRIPTION = """\
The agents of one home: start them, watch them, type into them, stop them.

Over TCP every request needs `Authorization: Bearer` with a token. The owner's
(`credentials/api-token` in the home) may do everything. An agent's (`BULLPEN_TOKEN` in its
environment) reads the list of agents, its own explanation, screen, diff and events, writes
messages, and reports its own hooks. The home's `sockets/hub.sock` needs no token and is the
owner's; `api/hub.sock` in an agent's session is that agent's. Beside what is listed there is one
WebSocket, `/agents/{name}/terminal`, for the owner.

Errors have one format: `error` for programs, `message` for people, `details`.
"""
ROUTERS = (
    status.router,
    agents.router,
    hooks.router,
    tree.router,
    tasks.router,
    task_agents.router,
    pods.router,
    approvals.router,
    landings.router,
    changes.router,
    worktrees.router,
    messages.router,
    events.router,
    components.router,
    directors.router,
    escalations.router,
    gc.router,
    fleet.router,
    usage.router,
    otlp.router,
    terminal.router,
    mcp.router,
    transcripts.router,
    docs.router,
)


class Api(FastAPI):
    """With errors described as they are: as JSON, also where a success is something else."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            errors.describe(super().openapi())
        assert self.openapi_schema is not None
        return self.openapi_schema


def make_app(hub: Hub, tools: ASGIApp | None = None) -> FastAPI:
    """The API of one hub. `tools` serves those of agents."""
    app = Api(
        title="Bullpen",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # it loads its scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.hub = hub
    app.state.tools = tools
    for router in ROUTERS:
        # As they are: `include_router` would make every route a second time, at the first request.
        app.router.routes.extend(router.routes)
    handlers: dict[Any, Any] = {
        BullpenError: errors.own,
        RequestValidationError: errors.invalid,
        WebSocketRequestValidationError: errors.invalid,
        HTTPException: errors.refused,
        Exception: errors.failed,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    app.router.default = errors.no_route
    return app

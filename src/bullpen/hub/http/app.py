"""The application: routes, and how its errors look."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bullpen import __version__
from bullpen.errors import BullpenError
from bullpen.hub.guard import RefusedError, answer_error, error_response
from bullpen.hub.http import agents, events, gc, pods, status, terminal
from bullpen.hub.http.state import Hub

NAMES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def make_app(hub: Hub) -> FastAPI:
    """The API of one hub."""
    app = FastAPI(
        title="Bullpen",
        version=__version__,
        description="Agents of one home: start them, watch them, type into them, stop them.",
        redoc_url=None,
    )
    app.state.hub = hub
    for router in (
        status.router,
        agents.router,
        pods.router,
        events.router,
        gc.router,
        terminal.router,
    ):
        app.include_router(router)
    app.add_exception_handler(BullpenError, _own)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    return app


async def _own(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BullpenError)
    return answer_error(error)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"
        for found in error.errors()
    ]
    return error_response(400, "validation_error", "; ".join(problems), {"problems": problems})


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = (
        error.error if isinstance(error, RefusedError) else NAMES.get(error.status_code, "refused")
    )
    response = error_response(error.status_code, name, str(error.detail))
    response.headers.update(error.headers or {})
    return response

"""The routes of a director, view or bridge: `/status`, `/shutdown`, `/config`, and its own.

Called by `component/server`. Parses requests and answers them. Leaving is done by
`component/server`, checking a config by `component/config`; who may ask is decided by
`component/guard`.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bullpen.component.answers import answer_error, answer_failure, answer_refused
from bullpen.component.config import plan_change, shown_config
from bullpen.component.lifecycle import plan_leaving
from bullpen.component.logs import LEVELS
from bullpen.component.process import ComponentProcess
from bullpen.errors import BullpenError
from bullpen.model.component import Shutdown

Leave = Callable[[float, bool], None]


class ComponentRoutes:
    """The routes of one component. `leave` is called with the seconds of a drain, and `force`."""

    def __init__(
        self,
        component: ComponentProcess,
        config_file: Path,
        config_data: dict[str, Any],
        leave: Leave,
    ) -> None:
        self._component = component
        self._config_file = config_file
        self._config_data = config_data  # as the file has it, and as it was changed since
        self._leave = leave

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/status", self._get_status),
                Route("/shutdown", self._shut_down, methods=["POST"]),
                Route("/config", self._get_config, methods=["GET"]),
                Route("/config", self._put_config, methods=["PUT"]),
                *self._component.routes(),
            ],
            exception_handlers={
                BullpenError: _answer_error,
                HTTPException: _answer_refused,
                Exception: self._answer_failure,
            },
        )

    async def _get_status(self, request: Request) -> Response:
        status = self._component.status()
        is_owner = request.scope["state"]["is_owner"]
        return JSONResponse((status if is_owner else status.public()).model_dump(mode="json"))

    async def _shut_down(self, request: Request) -> Response:
        shutdown = _parse_shutdown(await request.body())
        task = self._component.current_task()
        running = None if task is None else (task.id, "running")
        leaving = plan_leaving(self._component.name, shutdown, running)
        self._leave(leaving.drain_timeout, shutdown.force)
        return JSONResponse(leaving.model_dump(), 202)

    async def _get_config(self, _: Request) -> Response:
        return JSONResponse(
            {
                "config": shown_config(self._component.config),
                "live": sorted(self._component.live),
                "file": str(self._config_file),
            }
        )

    async def _put_config(self, request: Request) -> Response:
        given = parse_object(await request.body())
        component = self._component
        change = plan_change(component.config, self._config_data, given, component.live)
        if change.changed:
            component.config, self._config_data = change.config, change.data
            logging.getLogger().setLevel(LEVELS[change.config.log_level])
            component.reconfigured()
            component.life.note("info", "reconfigured", keys=list(change.changed))
        hint = f"change it in {self._config_file} and restart"
        return JSONResponse(
            {
                "config": shown_config(component.config),
                "changed": change.changed,
                "needs_restart": dict.fromkeys(change.needs_restart, hint),
            }
        )

    async def _answer_failure(self, _: Request, error: Exception) -> Response:
        """The guard gets the error afterwards all the same, and logs it."""
        return answer_failure(error, self._component.name)


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BullpenError)
    return answer_error(error)


async def _answer_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer_refused(error)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body of a request that has to be a JSON object."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BullpenError("the body is no JSON") from error
    if not isinstance(fields, dict):
        raise BullpenError("the body is no JSON object")
    return fields


def _parse_shutdown(body: bytes) -> Shutdown:
    try:
        return Shutdown.model_validate(parse_object(body) if body.strip() else {})
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()
        ]
        raise BullpenError("; ".join(lines), details={"problems": lines}) from error

"""A component for tests, a process: `python -m tests.component.sample HOME NAME FILE`.

Its slow part takes until the file `gate` is there; its tasks begin and end when it is told to.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bullpen.component.config import ComponentConfig
from bullpen.component.process import ComponentProcess
from bullpen.component.server import serve
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.component import CurrentTask, preview


class SampleConfig(ComponentConfig):
    """Beside what all have."""

    gate: str = ""
    problem: str = ""
    greeting: str = "hello"
    left: str = ""
    api_token: str = ""


class Sample(ComponentProcess):
    kind = "director"
    interfaces = ("statusable", "taskable", "configurable")
    config_type = SampleConfig
    live = frozenset({"log_level", "greeting"})
    task: CurrentTask | None = None
    config: SampleConfig

    async def prepare(self) -> None:
        while self.config.gate and not await asyncio.to_thread(Path(self.config.gate).exists):
            await asyncio.sleep(0.005)
        if self.config.problem == "bug":
            raise ZeroDivisionError("by nought")
        if self.config.problem:
            raise BullpenError(self.config.problem, kind=Kind.UNAVAILABLE)

    def current_task(self) -> CurrentTask | None:
        return self.task

    async def cancel(self) -> None:
        self.task = None

    async def leave(self) -> None:
        if self.config.left:
            said = "busy" if self.task else "idle"
            await asyncio.to_thread(Path(self.config.left).write_text, said)

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/begin", self.begin, methods=["POST"]),
            Route("/finish", self.finish, methods=["POST"]),
            Route("/greeting", self.greet),
            Route("/fail", self.fail),
        ]

    async def begin(self, request: Request) -> Response:
        if self.is_draining:
            raise BullpenError("it leaves", kind=Kind.UNAVAILABLE)
        shown = preview((await request.body()).decode())
        self.task = CurrentTask(id="t-1", started_at=time.time(), prompt_preview=shown)
        return JSONResponse({})

    async def finish(self, _: Request) -> Response:
        self.task = None
        return JSONResponse({})

    async def greet(self, _: Request) -> Response:
        return JSONResponse({"greeting": self.config.greeting})

    async def fail(self, _: Request) -> Response:
        raise ZeroDivisionError("by nought")


if __name__ == "__main__":
    sys.exit(serve(Sample, Home(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3])))

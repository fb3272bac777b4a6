"""What directors, views and bridges are served by: `/status`, `/shutdown`, `/config`, the log, the
hub's register.

A component is a subclass of `Served`; `serve` runs it to its end. It starts in stages: the config
file is checked before a port is bound, the port is bound before anything slow is done, and what
is slow (`prepare`) happens with the state `starting`. The hub may be away at any time.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bullpen import __version__
from bullpen.check import check, check_data, raise_if_any
from bullpen.component import ask, logs, mdns, ports
from bullpen.component.answers import RefusedError, answer_error, answer_failure, error_response
from bullpen.component.journal import Journal
from bullpen.component.listener import OwnerGuard, Server, server_config
from bullpen.component.redact import Redactor
from bullpen.component.register import Register
from bullpen.errors import EXIT_CODES, BullpenError, Kind
from bullpen.model import names
from bullpen.model.component import (
    DRAIN_SECONDS,
    CurrentTask,
    Interface,
    Leaving,
    Level,
    Phase,
    Registration,
    Shutdown,
    Status,
)
from bullpen.model.fields import Block
from bullpen.paths import Home
from bullpen.settings import Settings, load_settings
from bullpen.yamlfile import dotted, read

log = logging.getLogger("bullpen.component")

LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}
LOOK_SECONDS = 0.05  # between two looks whether a task is over
CANCEL_SECONDS = 15.0  # a program has ten to end before it is killed
LEAVE_SECONDS = 10.0
ERRORS = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class Config(Block):
    """What every component's file may say."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    log_level: Level = "info"


class Served:
    """A component: what it is, and its work. Made when its config is known to be right."""

    kind: ClassVar[Literal["director", "view", "bridge"]]
    interfaces: ClassVar[tuple[Interface, ...]] = ("statusable", "configurable")
    config_type: ClassVar[type[Config]] = Config
    # Keys of the config that may change while it runs.
    live: ClassVar[frozenset[str]] = frozenset({"log_level"})

    def __init__(self, home: Home, name: str, config: Config) -> None:
        self.home = home
        self.name = name
        self.config = config
        self.is_draining = False  # then it takes nothing new

    async def prepare(self) -> None:
        """The slow part of the start; a BullpenError makes its state `error`."""

    async def run(self) -> None:
        """Its work, once it is prepared; cancelled at the end."""

    def current_task(self) -> CurrentTask | None:
        """What it works on."""
        return None

    async def cancel(self) -> None:
        """End what it works on, now."""

    async def leave(self) -> None:
        """Put down what the next one has to know; the last call."""

    def reconfigured(self) -> None:
        """Some of `live` in `config` has changed."""

    def routes(self) -> Sequence[BaseRoute]:
        """What it serves besides."""
        return ()


def serve(kind: type[Served], home: Home, name: str, config_file: Path) -> int:
    """Run the component until it is told to leave; the exit code of the process."""
    try:
        names.check_worktree_name(name)
        config, data = _read_config(kind, config_file)
        settings = load_settings(home.config_file)
        token = ask.owner_token(home)
        listener = _listen(config.port, settings, config_file)
    except BullpenError as error:
        hint = f"\nhint:  {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return EXIT_CODES[error.kind]
    with listener:
        logs.configure(
            home.logs / f"{name}.log",
            component=name,
            level=LEVELS[config.log_level],
            secrets=[token],
        )
        life = _Life(kind(home, name, config), data, config_file, listener, token)
        asyncio.run(life.live(is_announced=settings.discovery.method == "mdns"))
    return 0


def _read_config(kind: type[Served], path: Path) -> tuple[Config, dict[str, Any]]:
    document = read(path)
    if document.data is None and not document.problems:
        return kind.config_type(), {}
    config, problems = check(kind.config_type, document)
    raise_if_any(path.name, problems)
    assert config is not None
    return config, document.data


def _listen(port: int | None, settings: Settings, config_file: Path) -> socket.socket:
    if port is not None:
        try:
            return ports.listen(port)
        except OSError as error:
            hint = f"choose another: port in {config_file}"
            raise ports.not_ours(port, error, hint, Kind.COMMAND_FAILED) from error
    for each in settings.discovery.ports:
        with contextlib.suppress(OSError):
            return ports.listen(each)
    raise BullpenError(
        f"no port is free in {settings.discovery.port_range}",
        hint=f"choose one: port in {config_file}",
        kind=Kind.COMMAND_FAILED,
    )


class _Life:
    """One component from its port to its end; lives on one event loop."""

    def __init__(
        self,
        component: Served,
        data: dict[str, Any],
        config_file: Path,
        listener: socket.socket,
        token: str,
    ) -> None:
        self.component = component
        self.data = data  # as the file says it
        self.config_file = config_file
        self.listener = listener
        self.port: int = listener.getsockname()[1]
        self.token = token
        self.journal = Journal(log)
        said = Registration(
            name=component.name,
            kind=component.kind,
            url=f"http://{ports.LOOPBACK}:{self.port}",
            pid=os.getpid(),
            version=__version__,
        )
        self.register = Register(component.home, said, self.journal)
        self.home_id = component.home.id
        self.began = time.monotonic()
        self.is_prepared = False
        self.problem = ""
        self.over = asyncio.Event()
        self.draining: asyncio.Task[None] | None = None

    # ── stages ──

    async def live(self, is_announced: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told)
        self.journal.note("info", "starting", port=self.port, version=__version__)
        config = server_config(OwnerGuard(self._app(), self.token, self.component.name))
        async with contextlib.AsyncExitStack() as stack:
            tasks = [
                asyncio.create_task(self._work(), name="work"),
                asyncio.create_task(self.register.run(), name="register"),
            ]
            if is_announced:
                tasks.append(
                    asyncio.create_task(
                        mdns.announce(self._status().public(), self.port), name="announce"
                    )
                )
            stack.push_async_callback(_end, tasks)
            await Server(config, self.over).serve(sockets=[self.listener])
        await self.register.leave()
        log.info("left")

    async def _work(self) -> None:
        if await self._succeeds(self.component.prepare()):
            self.is_prepared = True
            self.journal.note("info", "ready")
            await self._succeeds(self.component.run())

    async def _succeeds(self, work: Awaitable[None]) -> bool:
        """The boundary of a component's own code: what fails there is its state."""
        try:
            await work
        except BullpenError as error:
            self.problem = error.message
            self.journal.note("error", error.message, hint=error.hint)
            return False
        except Exception as error:
            self.problem = f"a bug: {type(error).__name__}: {error}"
            self.journal.note("error", self.problem)
            log.exception("failed")
            return False
        return True

    def _told(self) -> None:
        """By a signal: leave in order; by a second one: now."""
        if self.draining is not None:
            self.over.set()
        else:
            self._begin_to_leave(DRAIN_SECONDS, force=False)

    def _begin_to_leave(self, seconds: float, force: bool) -> None:
        if self.draining is not None:
            self.draining.cancel()  # the newer word counts
        self.component.is_draining = True
        self.journal.note("info", "draining", drain_timeout=seconds, force=force)
        self.draining = asyncio.create_task(self._drain(seconds, force), name="drain")

    async def _drain(self, seconds: float, force: bool) -> None:
        deadline = time.monotonic() + seconds
        while self.component.current_task() is not None and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)
        task = self.component.current_task()
        if task is not None and force:
            self.journal.note("warn", "cancels what runs", task_id=task.id)
            await self._within(CANCEL_SECONDS, self.component.cancel())
        await self._within(LEAVE_SECONDS, self.component.leave())
        self.over.set()

    async def _within(self, seconds: float, work: Awaitable[None]) -> None:
        """It leaves, whatever its own code takes."""
        try:
            async with asyncio.timeout(seconds):
                await self._succeeds(work)
        except TimeoutError:
            self.journal.note("error", f"not ready to leave within {seconds:g} s")

    # ── what it serves ──

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/status", self._get_status),
                Route("/shutdown", self._shut_down, methods=["POST"]),
                Route("/config", self._get_config, methods=["GET"]),
                Route("/config", self._put_config, methods=["PUT"]),
                *self.component.routes(),
            ],
            exception_handlers={
                BullpenError: _own,
                HTTPException: _refused,
                Exception: self._failed,
            },
        )

    async def _failed(self, _: Request, error: Exception) -> Response:
        """A failure of ours; the guard gets it afterwards all the same, and logs it."""
        return answer_failure(error, self.component.name)

    def _phase(self) -> Phase:
        if self.component.is_draining:
            return "draining"
        if self.problem:
            return "error"
        if not self.is_prepared:
            return "starting"
        return "idle" if self.component.current_task() is None else "working"

    def _status(self) -> Status:
        component = self.component
        return Status(
            type=component.kind,
            interfaces=component.interfaces,
            name=component.name,
            version=__version__,
            state=self._phase(),
            uptime_seconds=round(time.monotonic() - self.began, 3),
            home_id=self.home_id,
            pid=os.getpid(),
            current_task=component.current_task(),
            config=self._shown_config(),
            sandbox=None,
            log=self.journal.entries(),
        )

    def _shown_config(self) -> dict[str, Any]:
        found: dict[str, Any] = Redactor().value(
            self.component.config.model_dump(mode="json", by_alias=True)
        )
        return found

    async def _get_status(self, request: Request) -> Response:
        status = self._status()
        is_owner = request.scope["state"]["is_owner"]
        return JSONResponse((status if is_owner else status.public()).model_dump(mode="json"))

    async def _shut_down(self, request: Request) -> Response:
        body = await request.body()
        asked = _parse_shutdown(body)
        task = self.component.current_task()
        is_empty = not asked.model_fields_set
        if is_empty and task is not None:
            raise RefusedError(
                409,
                "task_in_progress",
                f"{self.component.name} works on {task.id}",
                {"task_id": task.id, "hint": "say timeout_seconds, or force"},
            )
        seconds = DRAIN_SECONDS if asked.timeout_seconds is None else asked.timeout_seconds
        self._begin_to_leave(seconds, asked.force)
        leaving = Leaving(
            message=f"{self.component.name} leaves", drain_timeout=seconds, pid=os.getpid()
        )
        return JSONResponse(leaving.model_dump(), 202)

    async def _get_config(self, _: Request) -> Response:
        return JSONResponse(
            {
                "config": self._shown_config(),
                "live": sorted(self.component.live),
                "file": str(self.config_file),
            }
        )

    async def _put_config(self, request: Request) -> Response:
        """Keys that are given change, the others stay; the file is the person's and stays, too."""
        given = _parse_object(await request.body())
        component = self.component
        new, problems = check_data(type(component.config), {**self.data, **given})
        if problems or new is None:
            lines = [f"{dotted(where)}: {message}" for where, message in problems]
            raise RefusedError(400, "validation_error", "; ".join(lines), {"problems": lines})
        old = component.config
        changed = [key for key in type(old).model_fields if getattr(old, key) != getattr(new, key)]
        now = [key for key in changed if key in component.live]
        if now:
            component.config = old.model_copy(update={key: getattr(new, key) for key in now})
            self.data = {**self.data, **{key: given[key] for key in now if key in given}}
            logging.getLogger().setLevel(LEVELS[component.config.log_level])
            component.reconfigured()
            self.journal.note("info", "reconfigured", keys=now)
        later = [key for key in changed if key not in now]
        said = f"change it in {self.config_file} and restart"
        return JSONResponse(
            {
                "config": self._shown_config(),
                "changed": now,
                "needs_restart": dict.fromkeys(later, said),
            }
        )


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "validation_error", "the body is no JSON") from error
    if not isinstance(found, dict):
        raise RefusedError(400, "validation_error", "the body is no JSON object")
    return found


def _parse_shutdown(body: bytes) -> Shutdown:
    try:
        return Shutdown.model_validate(_parse_object(body) if body.strip() else {})
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors()
        ]
        raise RefusedError(
            400, "validation_error", "; ".join(lines), {"problems": lines}
        ) from error


async def _own(_: Request, error: Exception) -> Response:
    assert isinstance(error, BullpenError)
    return answer_error(error)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, RefusedError):
        return error.answer()
    name = ERRORS.get(error.status_code, "refused")
    answer = error_response(error.status_code, name, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

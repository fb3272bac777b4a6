"""Runs a director, view or bridge: a process with a port, a socket for its owner, a log, and an
entry in the hub's register.

Called by the command that starts one: `serve(Scheduler, home, name, config_file)`, with a subclass
of `ComponentProcess`. It starts in stages: the config file is checked before a port is bound, the
port is bound before anything slow is done, and what is slow (`prepare`) happens while `/status`
says `starting`. Never imports the hub; the hub may be away at any time.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

from bullpen import __version__
from bullpen.client import AsyncHub
from bullpen.component import ask, http_server, logs, mdns, own_socket, ports
from bullpen.component.config import load_config
from bullpen.component.guard import OWNERS_SOCKET, OwnerGuard
from bullpen.component.http_server import HttpServer, Listener
from bullpen.component.process import ComponentProcess
from bullpen.component.register import Register
from bullpen.component.routes import ComponentRoutes
from bullpen.errors import EXIT_CODES, BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.home.settings import Discovery, load_settings
from bullpen.model import names
from bullpen.model.component import DRAIN_SECONDS, PROBLEM_CHARACTERS, Registration
from bullpen.model.state import Idle
from bullpen.text import seconds_text

log = logging.getLogger("bullpen.component")

LOOK_SECONDS = 0.05  # between two looks whether a task is over
CANCEL_SECONDS = 15.0  # a program has ten to end before it is killed
LEAVE_SECONDS = 10.0


def serve(component_type: type[ComponentProcess], home: Home, name: str, config_file: Path) -> int:
    """Run the component until it is told to leave; the exit code of the process."""
    try:
        names.check_worktree_name(name)
        config, data = load_config(component_type.config_type, config_file)
        settings = load_settings(home.config_file)
        component = component_type(home, name, config)
        owners_token, hub_token = ask.owner_token(home), component.hub_token
        discovery = component.discovery(settings.discovery)
        component.listen()
        listener = _listen(component.own_port, discovery, config_file)
        owners = _listen_to_owner(home)
    except BullpenError as error:
        hint = f"\nhint:  {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return EXIT_CODES[error.kind]
    with listener, owners:
        logs.configure(
            home.logs / f"{name}.log",
            component=name,
            level=logs.LEVELS[config.log_level],
            secrets=[owners_token, hub_token],
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)  # at info it logs every request
        hub = AsyncHub(home, token=hub_token, start=False)
        process = _Process(component, hub, listener, owners)
        routes = ComponentRoutes(process.component, config_file, data, process.leave)
        guard = OwnerGuard(routes.app(), owners_token, name, component.open_paths)
        try:
            http_server.run(process.run(guard, is_announced=discovery.method == "mdns"))
        finally:
            own_socket.remove(home)
    return 0


def _listen(port: int | None, discovery: Discovery, config_file: Path) -> socket.socket:
    if port is not None:
        try:
            return ports.listen(port)
        except OSError as error:
            hint = f"choose another: port in {config_file}"
            raise ports.port_taken_error(port, error, hint, Kind.COMMAND_FAILED) from error
    for each in discovery.ports:
        with contextlib.suppress(OSError):
            return ports.listen(each)
    raise BullpenError(
        f"no port is free in {discovery.port_range}",
        hint=f"choose one: port in {config_file}",
        kind=Kind.COMMAND_FAILED,
    )


def _listen_to_owner(home: Home) -> socket.socket:
    try:
        return own_socket.listen(home)
    except OSError as error:
        raise BullpenError(
            f"cannot listen in {home.sockets}: {error.strerror}",
            hint="bullpen doctor",
            kind=Kind.COMMAND_FAILED,
        ) from error


class _Process:
    """One component from its port to its end. Lives on one event loop."""

    def __init__(
        self,
        component: ComponentProcess,
        hub: AsyncHub,
        listener: socket.socket,
        owners: socket.socket,
    ) -> None:
        self.component = component
        self.life = component.life
        self._hub = hub
        self._listener = listener
        self._owners = Listener(owners, {OWNERS_SOCKET: True}, is_owners=True)
        self._port: int = listener.getsockname()[1]
        self._register = Register(hub, self._describe, self.life.journal, component.hub_is_back)

    def _describe(self) -> Registration:
        component = self.component
        return Registration(
            name=component.name,
            kind=component.kind,
            url=f"http://{ports.LOOPBACK}:{self._port}",
            pid=os.getpid(),
            version=__version__,
            state=self.life.phase(component.is_working),
            problem=" ".join(component.problem.split())[:PROBLEM_CHARACTERS],
        )

    async def run(self, guard: OwnerGuard, *, is_announced: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        self.life.note("info", "starting", port=self._port, version=__version__)
        work: list[Awaitable[None]] = [self._work(), self._register.run()]
        if is_announced:
            work.append(mdns.announce(self.component.status().public(), self._port))
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            server = HttpServer(guard, self.life.over)
            server.listen_on(self._owners)
            await server.serve(sockets=[self._listener])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with self._hub:
            await self._register.leave()
        log.info("left")

    async def _work(self) -> None:
        if await self._succeeds(self.component.prepare()):
            self.life.own_stage = Idle()
            self.life.note("info", "ready")
            self._register.wake()
            await self._succeeds(self.component.run())

    async def _succeeds(self, work: Awaitable[None]) -> bool:
        """The boundary of a component's own code: what fails there is its state."""
        try:
            await work
        except BullpenError as error:
            self.life.fail(error.message, hint=error.hint)
        except Exception as error:
            self.life.fail(f"a bug: {type(error).__name__}: {error}")
            log.exception("failed")
        else:
            return True
        self._register.wake()
        return False

    # ── leaving ──

    def _signalled(self) -> None:
        """The first signal drains, the second ends at once."""
        if self.life.is_draining:
            self.life.over.set()
        else:
            self.leave(DRAIN_SECONDS, force=False)

    def leave(self, seconds: float, force: bool) -> None:
        """Wait so long for what runs, then end; the newest call counts."""
        self.life.note("info", "draining", drain_timeout=seconds, force=force)
        self.life.drain(asyncio.create_task(self._drain(seconds, force), name="drain"))
        self._register.wake()

    async def _drain(self, seconds: float, force: bool) -> None:
        deadline = time.monotonic() + seconds
        while self.component.current_task() is not None and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)
        task = self.component.current_task()
        if task is not None and force:
            self.life.note("warn", "cancels what runs", task_id=task.id)
            await self._within(CANCEL_SECONDS, self.component.cancel())
        await self._within(LEAVE_SECONDS, self.component.leave())
        self.life.over.set()

    async def _within(self, seconds: float, work: Awaitable[None]) -> None:
        """It leaves, however long its own code takes."""
        try:
            async with asyncio.timeout(seconds):
                await self._succeeds(work)
        except TimeoutError:
            self.life.note("error", f"not ready to leave within {seconds_text(seconds)}")

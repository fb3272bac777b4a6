"""The hub's process: takes the home, makes the parts, serves until it is told to stop.

Started by `client/start` or `bullpen hub start --foreground`. The parts are listed in `hub/parts`,
the port is chosen in `hub/listen`, HTTP is served by `component/http_server`. Imports everything
before it serves: an upgrade under a running hub may remove modules. Has no rules of its own.
"""

import gc

if __name__ == "__main__":
    gc.disable()  # until all is loaded: what modules make is no garbage, and a look at it is dear

import asyncio
import contextlib
import difflib
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio._backends._asyncio
import pydantic._internal._dataclasses

from bullpen import __version__
from bullpen.component import http_server, logs, mdns
from bullpen.component.http_server import LEAVE_SECONDS, HttpServer, Listener
from bullpen.errors import BullpenError, Kind
from bullpen.holder.listeners import any_agent_lives
from bullpen.home import hub_file
from bullpen.home.paths import (
    HUB,
    Home,
    find_home,
    make_directories,
    person_home,
    remove_stale_sockets,
)
from bullpen.home.settings import Settings, load_settings
from bullpen.hub import listen
from bullpen.hub.agents import tokens
from bullpen.hub.background import in_daemon_thread
from bullpen.hub.context import HubContext
from bullpen.hub.holders.factory import Factory
from bullpen.hub.holders.inherit import find_again, find_listeners
from bullpen.hub.http.app import make_app
from bullpen.hub.http.fleet_routes import FleetRoutes
from bullpen.hub.http.guard import Guard
from bullpen.hub.http.status import describe
from bullpen.hub.kept_ports import KeptPorts
from bullpen.hub.lock import AlreadyServedError, refuse_read_only, take_lock
from bullpen.hub.mcp.endpoint import Endpoint
from bullpen.hub.parts import Hub, Part
from bullpen.hub.sockets import Sockets
from bullpen.hub.store.store import Store
from bullpen.model.event import Draft, Event

log = logging.getLogger("bullpen.hub")

THREADS = 32  # that all parts share
# Others import these only when they first need them; by then an upgrade may have removed them.
EAGER = (anyio._backends._asyncio, difflib, pydantic._internal._dataclasses)


def main() -> None:
    """Serve the home named by BULLPEN_DIR; the answer of the start goes to a descriptor."""
    ready = int(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        home = find_home(os.environ, Path("/"), person_home())
        serve(home, ready)
    except AlreadyServedError:
        _tell(ready, {"ok": False, "served": True})
        if ready is None:
            raise SystemExit("another hub serves this home") from None
    except BullpenError as error:
        _tell(ready, {"ok": False, **error.to_json()})
        raise SystemExit(f"hub: {error.message}") from error
    except OSError as error:
        what = ": ".join(filter(None, (error.strerror or str(error), error.filename)))
        failed = BullpenError(f"the hub cannot start: {what}", kind=Kind.UNAVAILABLE)
        _tell(ready, {"ok": False, **failed.to_json()})
        raise SystemExit(f"hub: {failed.message}") from error
    except Exception as error:
        failed = BullpenError(
            f"the hub cannot start, by a bug: {type(error).__name__}: {error}",
            kind=Kind.UNAVAILABLE,
        )
        _tell(ready, {"ok": False, **failed.to_json()})
        raise


def serve(home: Home, ready: int | None) -> None:
    """Take the home and serve it; returns when told to stop."""
    lock = take_lock(home)
    refuse_read_only(home)
    make_directories(home.root)  # whatever somebody has deleted
    remove_stale_sockets()
    settings = load_settings(home.config_file)
    owner = tokens.owner_token(home)
    logs.configure(
        home.logs / "hub.log",
        component="hub",
        level=logs.LEVELS[settings.log_level],
        secrets=[owner],
    )
    store = Store.open(home.root / "state.db")
    try:
        http_server.run(_serve(home, settings, store, owner, ready))
    finally:
        store.close()
        os.close(lock)


async def _serve(
    home: Home, settings: Settings, store: Store, owner: str, ready: int | None
) -> None:
    files_limit = _raise_files_limit()
    kept = KeptPorts(await asyncio.to_thread(find_listeners, home.factory_socket))
    tcp = await _open_port(home, settings, kept)
    local = listen.bind_socket(home)
    factory = Factory(home.factory_socket, files_limit, kept)
    port, last_boot = tcp.getsockname()[1], hub_file.find_last_boot(home)
    context = HubContext(home, settings, port, person_home(), last_boot)
    hub = Hub(context, store, factory)
    loop = asyncio.get_running_loop()
    # Python's own number is 6 on two processors: as many waits for a lock would stall the hub.
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "worker"))
    _stop_on_signals(loop, hub.stop)

    def publish(events: list[Event]) -> None:
        loop.call_soon_threadsafe(hub.notice, events)

    store.on_commit = publish
    tools = Endpoint(hub)
    app = make_app(hub, tools)
    hub.parts = (*hub.parts, Part(notice=tools.notice, leave=tools.leave))
    routed = FleetRoutes(app, hub.fleet)
    guard = Guard(routed, hub.registry, hub.directors, owner, str(home.socket(HUB)))
    hub.fleet.app = guard
    await factory.start()
    await hub.load()
    await store.append(_started())

    server = HttpServer(guard, hub.stop, hub.leave)
    await hub.agent_sockets.serve(server)
    await hub.task_agents.ports.serve(server)
    kept.serve_rest(lambda rest: server.listen_on(Listener(rest)).close)
    sockets = Sockets(home, hub.registry, hub.watch, lambda: _listen_again(home, server))
    sockets.look()
    loop.add_signal_handler(signal.SIGUSR1, sockets.look)
    # Who finds the file may send the signal: the handler comes first.
    hub_file.write_hub_file(home, hub.port, __version__)
    serving = await server.start(local, tcp)
    _tell(ready, {"ok": True, "pid": os.getpid(), "version": __version__})
    log.info(
        "serving", extra={"pid": os.getpid(), "port": hub.port, "agents": len(list(hub.registry))}
    )
    running = hub.run()
    await _over(serving, hub)
    _cancel(*running)
    if not hub.is_restarting:
        kept.turn_away()
    is_through = await hub.background.leave()
    factory.leave(stays=any_agent_lives(str(home.factory_socket.parent)))
    kept.close()
    log.info("left", extra={"is_through": is_through})
    # A set-up command that takes its time, or a file system that does not answer. The next hub
    # takes it back, as after a crash.
    if not (is_through and await _threads_have_ended()):
        await in_daemon_thread(store.close)
        os._exit(0)


async def _open_port(home: Home, settings: Settings, kept: KeptPorts) -> socket.socket:
    try:
        return listen.bind_port(home, settings.port, os.environ, kept)
    except BullpenError:
        # A holder may have it whose socket somebody has deleted.
        if not kept.add(await asyncio.to_thread(find_again, home)):
            raise
        return listen.bind_port(home, settings.port, os.environ, kept)


async def _threads_have_ended() -> bool:
    """Whether the threads that must come to their end have; asyncio itself would wait for ever."""
    ending = asyncio.create_task(asyncio.get_running_loop().shutdown_default_executor())
    return bool((await asyncio.wait({ending}, timeout=LEAVE_SECONDS))[0])


async def _over(serving: asyncio.Task[None], hub: Hub) -> None:
    """Until it serves no longer; announced meanwhile, if the home says so."""
    announcing: set[asyncio.Task[None]] = set()
    if hub.settings.discovery.method == "mdns":
        status = (await describe(hub)).public()
        announcing.add(asyncio.create_task(mdns.announce(status, hub.port), name="announce"))
    await serving
    _cancel(*announcing)
    if announcing:  # it takes its announcement back
        await asyncio.wait(announcing, timeout=LEAVE_SECONDS)


def _stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()


def _listen_again(home: Home, server: HttpServer) -> None:
    """If somebody deleted the socket."""
    try:
        listener = listen.bind_socket_again(home)
    except OSError as error:
        log.error("cannot listen again", extra={"reason": str(error)})
        return
    if listener is not None:
        log.warning("the socket was gone; listening anew")
        server.listen_on(Listener(listener, is_owners=True))


def _started() -> Draft:
    return Draft(time.time(), "hub.started", data={"version": __version__, "pid": os.getpid()})


def _raise_files_limit() -> int:
    """As many descriptors as we may have: one per agent and per client. The old limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def _tell(ready: int | None, fields: dict[str, object]) -> None:
    """Answer whoever started us; they may have left."""
    if ready is not None:
        with contextlib.suppress(OSError):
            os.write(ready, json.dumps(fields).encode() + b"\n")
            os.close(ready)


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    main()

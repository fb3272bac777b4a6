"""The hub's process: wires the parts, serves until told to stop. No logic of its own.

Started by `client.start` or `bullpen hub start --foreground`. Everything is imported before
it serves, so that an upgrade under a running hub does no harm.
"""

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
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio._backends._asyncio
import pydantic._internal._dataclasses
import uvicorn

from bullpen import __version__
from bullpen.component import logs, mdns
from bullpen.errors import BullpenError, Kind
from bullpen.hub import place, tokens
from bullpen.hub.adopt import adopt
from bullpen.hub.factory import Factory
from bullpen.hub.feed import Feed
from bullpen.hub.guard import Guard
from bullpen.hub.http.app import make_app
from bullpen.hub.http.connection import Connection, SocketConnection
from bullpen.hub.http.state import Hub
from bullpen.hub.http.status import describe
from bullpen.hub.launch import Ground
from bullpen.hub.registry import Registry
from bullpen.hub.sockets import Sockets
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.hub.upkeep import Upkeep
from bullpen.model.event import Draft, Event
from bullpen.paths import HUB, Home, find_home, make_directories, person_home
from bullpen.settings import Settings, load_settings

log = logging.getLogger("bullpen.hub")

# Others import these only when they first need them; by then an upgrade may have removed them.
EAGER = (anyio._backends._asyncio, difflib, pydantic._internal._dataclasses)
LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}
LEAVE_SECONDS = 2  # for requests under way; streams are cut, and resume


class Server(uvicorn.Server):
    """Uvicorn without its ten wake-ups a second: an idle hub sleeps."""

    def __init__(
        self, config: uvicorn.Config, stop: asyncio.Event, leave: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.stop = stop
        self.leave = leave
        self.more: list[asyncio.Task[asyncio.Server]] = []

    def listen_on(self, listener: socket.socket) -> None:
        """Serve there, too."""
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state={}
            )

        self.more.append(loop.create_task(loop.create_server(connection, sock=listener)))

    async def main_loop(self) -> None:
        await self.stop.wait()
        self.leave()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `serve` has its own


def main() -> None:
    """Serve the home named by BULLPEN_DIR; the answer of the start goes to a descriptor."""
    ready = int(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        home = find_home(os.environ, Path("/"), person_home())
        serve(home, ready)
    except place.AlreadyServedError:
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
    lock = place.take_lock(home)
    place.refuse_read_only(home)
    make_directories(home.root)  # whatever somebody has deleted
    settings = load_settings(home.config_file)
    owner = tokens.owner_token(home)
    logs.configure(
        home.logs / "hub.log", component="hub", level=LEVELS[settings.log_level], secrets=[owner]
    )
    store = Store.open(home.root / "state.db")
    try:
        uvicorn_loop = uvicorn.Config("", loop="uvloop").get_loop_factory()
        with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
            runner.run(_serve(home, settings, store, owner, ready))
    finally:
        store.close()
        os.close(lock)


async def _serve(
    home: Home, settings: Settings, store: Store, owner: str, ready: int | None
) -> None:
    tcp = place.bind_port(home, _port_wanted() or settings.port)
    local = place.bind_socket(home)
    registry = Registry()
    factory = Factory(home.factory_socket, _raise_files_limit())
    feed = Feed(store)
    ground = Ground(home, settings, tcp.getsockname()[1], person_home())
    supervisor = Supervisor(ground, store, registry, factory)
    hub = Hub(home, settings, ground.port, store, feed, registry, supervisor)
    loop = asyncio.get_running_loop()
    _stop_on_signals(loop, hub.stop)

    upkeep = Upkeep(supervisor)

    def publish(events: list[Event]) -> None:
        loop.call_soon_threadsafe(feed.publish, events)
        loop.call_soon_threadsafe(upkeep.notice, events)
        loop.call_soon_threadsafe(hub.notice, events)

    store.on_commit = publish
    app = make_app(hub)
    config = server_config(Guard(app, registry, owner, str(home.socket(HUB))))
    await factory.start()
    reading = asyncio.create_task(supervisor.watch.state_files.run(), name="state files")
    await adopt(supervisor)
    await hub.load()
    await store.append(_started())

    server = Server(config, hub.stop, hub.leave)
    await supervisor.doors.serve(config, server.server_state)
    await hub.seats.ports.serve(config, server.server_state)
    sockets = Sockets(supervisor, lambda: _listen_again(home, server))
    sockets.look()
    loop.add_signal_handler(signal.SIGUSR1, sockets.look)
    # Who finds the file may send the signal: the handler comes first.
    place.write_hub_file(home, hub.port, __version__)
    serving = asyncio.create_task(server.serve(sockets=[local, tcp]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.001)
    _tell(ready, {"ok": True, "pid": os.getpid(), "version": __version__})
    log.info("serving", extra={"pid": os.getpid(), "port": hub.port, "agents": len(list(registry))})
    seating = hub.seats.start_all(hub.components.journal)
    beside = (upkeep.run(), hub.usage.run(), hub.budgets.run(), seating)
    tending = [*map(asyncio.create_task, beside)]
    await _over(serving, hub)
    _cancel(*tending, reading)
    is_through = await supervisor.beside.leave()
    factory.leave()
    log.info("left", extra={"is_through": is_through})
    if not is_through:
        # A set-up command that takes its time. The next hub takes it back, as after a crash.
        await asyncio.to_thread(store.close)
        os._exit(0)


async def _over(serving: asyncio.Task[None], hub: Hub) -> None:
    """Until it serves no longer; announced meanwhile, if the home says so."""
    announcing: set[asyncio.Task[None]] = set()
    if hub.settings.discovery.method == "mdns":
        said = (await describe(hub)).public()
        announcing.add(asyncio.create_task(mdns.announce(said, hub.port), name="announce"))
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


def server_config(guard: Guard) -> uvicorn.Config:
    """How everything is served, at whichever door."""
    return uvicorn.Config(
        guard,
        http=Connection,
        ws=SocketConnection,
        lifespan="off",
        log_config=None,
        log_level="warning",  # at info the server logs queries, at debug what is typed
        access_log=False,
        server_header=False,
        date_header=False,  # the guard's is right also in an idle hub
        timeout_graceful_shutdown=LEAVE_SECONDS,
        ws_max_size=1 << 20,
        ws_per_message_deflate=False,
    )


def _listen_again(home: Home, server: Server) -> None:
    """If somebody deleted the socket."""
    try:
        found = place.bind_socket_again(home)
    except OSError as error:
        log.error("cannot listen again", extra={"reason": str(error)})
        return
    if found is not None:
        log.warning("the socket was gone; listening anew")
        server.listen_on(found)


def _port_wanted() -> int | None:
    text = os.environ.get("BULLPEN_PORT", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise BullpenError(f"BULLPEN_PORT is no port: {text[:80]!r}")
    return int(text)


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
    main()

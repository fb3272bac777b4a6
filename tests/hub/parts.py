"""The parts of a hub in this process, without HTTP and without a process of its own: for stories
that need a moment between two steps of it.

    def test_something() -> None:
        async def story(parts: Parts) -> None:
            amy = parts.agent("amy")
            await parts.supervisor.watch.ended(amy, {"code": 0})
        in_parts(story)
"""

import asyncio
import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bullpen.holder.frames import Reader, json_frame
from bullpen.hub import sessions
from bullpen.hub.factory import Factory
from bullpen.hub.feed import Feed
from bullpen.hub.http.state import Hub
from bullpen.hub.launch import Ground
from bullpen.hub.registry import Live, Registry
from bullpen.hub.sessions import Settled
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.model.agent import Agent
from bullpen.model.launch import Launch
from bullpen.model.state import Evidence, Exited, Idle, State, View
from bullpen.paths import Home
from bullpen.settings import Settings
from tests.hub.pen import made_pen

T = TypeVar("T")

SECONDS = 60.0
ENDED = Exited(code=0)


class Parts:
    """One hub, as far as it is no server."""

    def __init__(self, home: Home, store: Store, settings: Settings) -> None:
        self.home = home
        self.store = store
        registry = Registry()
        factory = Factory(home.factory_socket, 1024)
        person = home.root.parent / "person"
        person.mkdir(exist_ok=True)
        ground = Ground(home, settings, 1, person)
        self.supervisor = Supervisor(ground, store, registry, factory)
        self.hub = Hub(home, settings, 1, store, Feed(store), registry, self.supervisor)
        self.registry = registry
        self.factory = factory
        self.tasks = self.hub.tasks
        self.seats = self.hub.seats

    def agent(self, name: str = "amy", state: State | None = None, **fields: Any) -> Live:
        """Known, with a session on disk; nobody holds it. In a terminal unless told otherwise."""
        given = {"run": uuid.uuid4().hex, "cwd": "/", "command": ("x",), "created": "", **fields}
        agent = Agent(name=name, **given)
        sessions.create(self.home, agent, Settled({"PATH": os.defpath}))
        note = Evidence(source="process", says="", at=0.0)
        view = View(
            run=agent.run, state=state or Idle(), since=0.0, decided_by="process", evidence=(note,)
        )
        live = Live(agent, view)
        if view.is_over:
            live.over.set()
        self.registry.put(live)
        return live

    def role(self, name: str, *command: str, **fields: Any) -> None:
        """A plain program that takes tasks, without walls."""
        asked = {"agent_type": "command", "command": list(command), "sandbox": {"enabled": False}}
        (self.home.roles / f"{name}.yaml").write_text(json.dumps({"name": name, **asked, **fields}))

    async def seat(self, name: str, *command: str, **fields: Any) -> Live:
        """An agent that takes tasks, started and ready."""
        self.role(name, *command, **fields)
        env = {"PATH": os.defpath}
        asked = Launch(kind="headless", name=name, role=name, cwd="/", env=env)
        live = await self.supervisor.launch(asked)
        await until(lambda: self.seats.is_ready(name))
        return live

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What is on disk of that kind."""
        found = self.store.after(0, 10_000, kinds=(kind,))
        return [{"agent": event.agent, **event.data} for event in found]


async def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """On the loop: `wait_until` would hold it up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """As a living holder has its directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class ObedientHolder:
    """Greets under a tag, and says yes to everything; what it was asked to do is in `done`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.done: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = os.getpid()
        writer.write(json_frame(b"H", {"tag": self.tag, "pid": pid, "child": pid}))
        frames = Reader()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                for kind, _payload in frames.feed(data):
                    self.done.append(kind)
                    writer.write(json_frame(b"K", {"for": kind.decode()}))
        writer.close()


@contextlib.asynccontextmanager
async def held_by(directory: Path, socket: Path, tag: str) -> AsyncIterator[ObedientHolder]:
    """A holder of that tag, alive and listening there."""
    holder = ObedientHolder(tag)
    with locked(directory):
        server = await asyncio.start_unix_server(holder.talk, str(socket))
        try:
            yield holder
        finally:
            server.close()
            socket.unlink(missing_ok=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """On a loop such as the hub has: what happens at the end of a connection differs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def in_parts(
    story: Callable[[Parts], Awaitable[T]],
    settings: Settings | None = None,
    *,
    factory: bool = False,
) -> T:
    """Tell that story in a new hub; with `factory` programs can be held. Nothing is left of it."""

    async def told(home: Home, store: Store) -> T:
        parts = Parts(home, store, settings or Settings())
        if factory:
            await parts.factory.start()
        await parts.tasks.load()
        try:
            async with asyncio.timeout(2 * SECONDS):
                return await story(parts)
        finally:
            parts.hub.leave()
            await parts.supervisor.beside.leave()
            parts.factory.leave()

    with made_pen(with_port=False) as pen:
        store = Store.open(pen.root / "state.db")
        try:
            return run(told(pen.home, store))
        finally:
            store.close()

"""The parts of a hub on the test's own loop, and agents put in by hand: no server, no factory, no
program. What a holder and a program would do is done by sockets of the test."""

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from bullpen.engines.claude import Claude
from bullpen.holder.frames import Reader, frame, json_frame
from bullpen.hub import holders
from bullpen.hub.factory import Factory
from bullpen.hub.feed import Feed
from bullpen.hub.http.state import Hub
from bullpen.hub.launch import Ground
from bullpen.hub.registry import Live, Registry
from bullpen.hub.store import Store
from bullpen.hub.supervise import Supervisor
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.message import Message, Priority, new_id
from bullpen.model.state import Held, Launched, State, Told, fold
from bullpen.paths import Home, make_directories
from bullpen.settings import load_settings

WAIT = 60.0
ENGINE = "told"


class ToldEngine(Claude):
    """Shows of messages what the test says, and counts how often it was looked for."""

    name = ENGINE

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self.looks = 0

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        self.looks += 1
        return self.shown & ids


class TypedHolder:
    """Takes what is typed, as a holder does; or refuses it."""

    def __init__(self) -> None:
        self.typed: list[bytes] = []
        self.refused = 0
        self.asked = 0  # how it is
        self.is_refusing = False
        self.last_input: float | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Reader()
        writer.write(json_frame(b"H", {"pid": 1}))
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                for kind, payload in frames.feed(data):
                    if kind == b"I" and self.is_refusing:
                        self.refused += 1
                        writer.write(json_frame(b"F", {"message": "not now"}))
                    elif kind == b"I":
                        self.typed.append(payload)
                        self.last_input = time.time()  # it cannot tell who typed
                    elif kind == b"S":
                        self.asked += 1
                        writer.write(json_frame(b"S", {"last_input": self.last_input}))
                    elif kind == b"A":
                        writer.write(frame(b"K"))
        writer.close()


class Inlet:
    """A program's own socket for messages. While it is busy it takes connections and reads
    nothing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.connections = self.open = 0
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await self.is_free.wait()
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            while line := await reader.readline():
                self.lines.append(line)
        self.open -= 1
        writer.close()


class Parts:
    """One home and the parts of its hub."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.registry = Registry()
        ground = Ground(home, load_settings(home.config_file), 1, home.root)
        factory = Factory(home.factory_socket, 1024)
        self.supervisor = Supervisor(ground, store, self.registry, factory)
        self.hub = Hub(home, ground.settings, 1, store, Feed(store), self.registry, self.supervisor)
        self._servers: list[asyncio.Server] = []
        loop = asyncio.get_running_loop()

        def publish(events: list[Event]) -> None:
            loop.call_soon_threadsafe(self.hub.notice, events)

        store.on_commit = publish

    # ── agents ──

    def put(self, name: str = "amy", state: State | None = None, **fields: Any) -> Live:
        """An agent of which nothing is recorded yet; it is starting, or in that state."""
        given = {"run": f"run-{name}", "engine": ENGINE, "cwd": "/", "command": ("x",)}
        agent = Agent(name=name, created="c1", **{**given, **fields})
        view = fold(fold(None, Launched(at=1.0, run=agent.run)), Held(at=2.0, holder=1, child=2))
        if state is not None:
            view = fold(view, Told(at=3.0, source="hook X", says="x", state=state))
        live = Live(agent, view)
        self.registry.put(live)
        return live

    async def tell(self, name: str, state: State, at: float | None = None) -> None:
        """Its engine says what it does."""
        live = self.registry.get(name)
        await self.supervisor.record.observe(live, told(live, state, at))

    async def hold(self, live: Live) -> TypedHolder:
        """A holder for it, with the hub's link."""
        made, path = TypedHolder(), self.home.socket(live.agent.name)
        self._servers.append(await asyncio.start_unix_server(made.serve, str(path)))
        live.link = await holders.connect(path)
        return made

    async def listen(self, live: Live) -> Inlet:
        """A socket for messages of its program."""
        made, path = Inlet(), self.home.message_socket(live.agent.name)
        self._servers.append(await asyncio.start_unix_server(made.serve, str(path)))
        live.agent = live.agent.model_copy(update={"message_socket": str(path)})
        return made

    async def send(self, text: str, priority: Priority = "normal", to: str = "amy") -> Message:
        return await self.hub.delivery.send(message(text, priority, to))

    # ── what is on disk ──

    async def events(self, kind: str, agent: str | None = None) -> list[Event]:
        """All of that kind."""
        return await asyncio.to_thread(self.store.after, 0, 10_000, kinds={kind}, agent=agent)

    async def inbox(self, name: str = "amy") -> list[Message]:
        return await self.hub.messages.inbox(name, 1000)

    async def change(self, statement: str) -> None:
        """Of the database."""

        def execute(database: sqlite3.Connection) -> None:
            database.execute(statement)

        await asyncio.wrap_future(self.store.write(execute))

    async def close(self) -> None:
        self.hub.delivery.close()
        ours = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not ours]
        for live in self.registry:
            if live.link is not None:
                live.link.close()
        for server in self._servers:
            server.close()
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=WAIT) if left else None
        self.hub.feed.close()


def told(live: Live, state: State, at: float | None = None) -> Told:
    """What its engine says, now if no time is given."""
    when = max(time.time(), live.view.told_at) if at is None else at
    return Told(at=when, source="hook X", says="x", state=state)


def message(text: str = "x", priority: Priority = "normal", to: str = "amy") -> Message:
    return Message(
        id=new_id(), sender="root", to=to, text=text, priority=priority, created=time.time()
    )


@contextlib.asynccontextmanager
async def made_parts(home: Home) -> AsyncIterator[Parts]:
    """The parts of one hub; may be made again for the same home, as the next hub."""
    store = Store.open(home.root / "state.db")
    made = Parts(home, store)
    try:
        yield made
    finally:
        await made.close()
        store.on_commit = None
        await asyncio.to_thread(store.close)


@contextlib.contextmanager
def made_home() -> Any:
    """Where paths of sockets are short."""
    root = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve()
    try:
        make_directories(root)
        yield Home(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def run(work: Callable[[Parts], Coroutine[Any, Any, None]]) -> None:
    """With the parts of a new home."""

    async def whole(home: Home) -> None:
        async with asyncio.timeout(WAIT), made_parts(home) as parts:
            await work(parts)

    with made_home() as home:
        asyncio.run(whole(home))


async def until(condition: Callable[[], bool]) -> None:
    """On the loop; the deadline is `run`'s."""
    pause = 0.001
    while not condition():
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def tasks(name: str) -> list["asyncio.Task[Any]"]:
    """Those of that name that go on."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name]

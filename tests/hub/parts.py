"""The parts of a hub in this process, without HTTP and without a process of its own: for stories
that need a moment between two steps of it. What a holder and a program would do is done by
stand-ins, unless the factory is started.

    def test_something() -> None:
        async def story(parts: Parts) -> None:
            amy = parts.agent("amy")
            await parts.hub.watch.ended(amy, {"code": 0})
        in_parts(story)
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bullpen.home.paths import Home, make_directories
from bullpen.home.settings import Settings, load_settings
from bullpen.hub.agents import sessions
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.context import HubContext
from bullpen.hub.holders import link as holder_link
from bullpen.hub.holders.factory import Factory
from bullpen.hub.parts import Hub
from bullpen.hub.store.database import connect
from bullpen.hub.store.events import list_after
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.fold import fold
from bullpen.model.launch import Launch
from bullpen.model.message import Message, Priority, new_id
from bullpen.model.state import (
    EngineReport,
    Evidence,
    Exited,
    HolderRunning,
    Idle,
    Launched,
    State,
    View,
)
from tests.hub.pen import made_pen
from tests.hub.stand_ins import ENGINE, Inlet, TypedHolder

T = TypeVar("T")

SECONDS = 60.0
ENDED = Exited(code=0)


class Parts:
    """One home and the parts of its hub."""

    def __init__(self, home: Home, store: Store, settings: Settings) -> None:
        self.home = home
        self.store = store
        person = home.root.parent / "person"
        person.mkdir(exist_ok=True)
        self.factory = Factory(home.factory_socket, 1024)
        self.hub = Hub(HubContext(home, settings, 1, person), store, self.factory)
        self.registry = self.hub.registry
        self.tasks = self.hub.tasks
        self.task_agents = self.hub.task_agents
        self._servers: list[asyncio.Server] = []
        loop = asyncio.get_running_loop()

        def publish(events: list[Event]) -> None:
            loop.call_soon_threadsafe(self.hub.notice, events)

        store.on_commit = publish

    # ── agents ──

    def agent(self, name: str = "amy", state: State | None = None, **fields: Any) -> LiveAgent:
        """Known, with a session on disk; nobody holds it. In a terminal unless told otherwise."""
        given = {"run": uuid.uuid4().hex, "cwd": "/", "command": ("x",), "created": "", **fields}
        agent = Agent(name=name, **given)
        sessions.create(self.home, agent, LaunchEnv({"PATH": os.defpath}))
        note = Evidence(source="process", says="", at=0.0)
        view = View(
            run=agent.run, state=state or Idle(), since=0.0, decided_by="process", evidence=(note,)
        )
        live = LiveAgent(agent, view)
        if view.is_over:
            live.over.set()
        self.registry.put(live)
        return live

    def role(self, name: str, *command: str, **fields: Any) -> None:
        """A plain program that takes tasks, without walls."""
        asked = {"agent_type": "command", "command": list(command), "sandbox": {"enabled": False}}
        (self.home.roles / f"{name}.yaml").write_text(json.dumps({"name": name, **asked, **fields}))

    async def task_agent(self, name: str, *command: str, **fields: Any) -> LiveAgent:
        """An agent that takes tasks, started and ready."""
        self.role(name, *command, **fields)
        env = {"PATH": os.defpath}
        asked = Launch(kind="headless", name=name, role=name, cwd="/", env=env)
        live = await self.hub.launcher.launch(asked)
        await until(lambda: live.view.is_ready)
        return live

    async def claude_agent(self, name: str, program: Path, **fields: Any) -> LiveAgent:
        """The same of a program that takes the place of Claude Code."""
        role = {"name": name, "sandbox": {"enabled": False}, **fields}
        (self.home.roles / f"{name}.yaml").write_text(json.dumps(role))
        home = str(self.home.root.parent / "person")
        env = {"PATH": os.defpath, "HOME": home, "ANTHROPIC_API_KEY": "k"}
        env["BULLPEN_CLAUDE_BIN"] = str(program)
        asked = Launch(kind="headless", name=name, role=name, cwd="/", env=env)
        live = await self.hub.launcher.launch(asked)
        await until(lambda: live.view.is_ready)
        return live

    def put(self, name: str = "amy", state: State | None = None, **fields: Any) -> LiveAgent:
        """An agent of which nothing is recorded yet; it is starting, or in that state."""
        given = {"run": f"run-{name}", "engine": ENGINE, "cwd": "/", "command": ("x",)}
        agent = Agent(name=name, **{"created": "c1", **given, **fields})
        view = fold(
            fold(None, Launched(at=1.0, run=agent.run)), HolderRunning(at=2.0, holder=1, child=2)
        )
        if state is not None:
            view = fold(view, EngineReport(at=3.0, source="hook X", says="x", state=state))
        live = LiveAgent(agent, view)
        self.registry.put(live)
        return live

    async def tell(self, name: str, state: State, at: float | None = None) -> None:
        """Its engine says what it does."""
        live = self.registry.get(name)
        await self.hub.observer.observe(live, told(live, state, at))

    async def hold(self, live: LiveAgent) -> TypedHolder:
        """A holder for it, with the hub's link."""
        made, path = TypedHolder(), self.home.socket(live.agent.name)
        self._servers.append(await asyncio.start_unix_server(made.serve, str(path)))
        live.link = await holder_link.connect(path)
        return made

    async def listen(self, live: LiveAgent) -> Inlet:
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
        return await self.store.read(list_after(0, 10_000, kinds={kind}, agent=agent))

    def events_now(self, kind: str) -> list[dict[str, Any]]:
        """What is on disk of that kind."""
        with contextlib.closing(connect(self.store.path, read_only=True)) as database:
            events = list_after(0, 10_000, kinds=(kind,))(database)
        return [{"agent": event.agent, **event.data} for event in events]

    async def inbox(self, name: str = "amy") -> list[Message]:
        return await self.hub.messages.inbox(name, 1000)

    async def change(self, statement: str) -> None:
        """Of the database."""
        await self.store.write(lambda transaction: transaction.connection.execute(statement))

    async def close(self) -> None:
        """As a hub that stops; nothing of it goes on."""
        self.hub.leave()
        await self.hub.background.leave()
        for live in self.registry:
            if live.link is not None:
                live.link.close()
        for server in self._servers:
            server.close()
        ours = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not ours]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SECONDS)
        self.factory.leave()


def told(live: LiveAgent, state: State, at: float | None = None) -> EngineReport:
    """What its engine says, now if no time is given."""
    when = max(time.time(), live.view.told_at) if at is None else at
    return EngineReport(at=when, source="hook X", says="x", state=state)


def message(
    text: str = "x", priority: Priority = "normal", to: str = "amy", sender: str = "root"
) -> Message:
    return Message(
        id=new_id(), sender=sender, to=to, text=text, priority=priority, created=time.time()
    )


@contextlib.asynccontextmanager
async def made_parts(home: Home, settings: Settings | None = None) -> AsyncIterator[Parts]:
    """The parts of one hub; may be made again for the same home, as the next hub."""
    store = Store.open(home.root / "state.db")
    made = Parts(home, store, settings or load_settings(home.config_file))
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
        home = Home(root / "home")
        home.root.mkdir()
        make_directories(home.root)
        yield home
    finally:
        shutil.rmtree(root, ignore_errors=True)


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

    async def told(home: Home) -> T:
        async with made_parts(home, settings) as parts, asyncio.timeout(2 * SECONDS):
            if factory:
                await parts.factory.start()
            await parts.tasks.load()
            return await story(parts)

    with contextlib.ExitStack() as stack:
        if factory:
            home = stack.enter_context(made_pen(with_port=False)).home
        else:
            home = stack.enter_context(made_home())
        return run(told(home))


async def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """On the loop: `wait_until` would hold it up."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def tasks(name: str) -> list["asyncio.Task[Any]"]:
    """Those of that name that go on."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name]

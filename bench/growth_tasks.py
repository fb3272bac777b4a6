"""Growth of the queue of tasks: what one more costs, what a free agent looks at, who is woken."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.sizes import compare
from bench.table import MEMORY, PREFIX, Row
from bullpen.home.paths import Home, make_directories
from bullpen.home.settings import load_settings
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.context import HubContext
from bullpen.hub.holders.factory import Factory
from bullpen.hub.parts import Hub
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.fold import fold
from bullpen.model.state import HolderRunning, Idle, Launched
from bullpen.model.task import QueuedTaskRequest

MOVES = 20


def rows(short: bool) -> Iterator[Row]:
    """Tasks that nobody can do, beside agents that are free."""
    few, many, agents, rounds = (10, 50, 10, 3) if short else (100, 1000, 200, 15)
    with _queue(few, agents) as small, _queue(many, agents) as large:
        sizes = (f"{few}", f"{many} waiting")
        works = [partial(hub.run, _offer) for hub in (small, large)]
        yield compare(f"submit beside {agents} agents", sizes, works, rounds)
        works = [partial(hub.run, _look) for hub in (small, large)]
        yield compare("free agents that none fits", sizes, works, rounds)
    followers = (10, 20) if short else (20, 200)
    with ExitStack() as stack:
        hubs = [stack.enter_context(_queue(1, 1)) for _ in followers]
        for hub, count in zip(hubs, followers, strict=True):
            hub.run(partial(_follow, count=count))
        works = [partial(hub.run, _move) for hub in hubs]
        sizes = (f"{followers[0]}", f"{followers[1]} other followers")
        yield compare("20 moves of a task", sizes, works, rounds)


class _Queue:
    """The parts of a hub, on a loop of their own."""

    def __init__(self, runner: asyncio.Runner, hub: Hub) -> None:
        self._runner = runner
        self._hub = hub

    def run(self, work: Callable[[Hub], object]) -> None:
        """Do that on the loop."""

        async def do() -> None:
            done = work(self._hub)
            if asyncio.iscoroutine(done):
                await done

        self._runner.run(do())


@contextmanager
def _queue(count: int, agents: int) -> Iterator[_Queue]:
    """The parts of a hub with agents that are free, and tasks that none of them fits."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=MEMORY) as scratch:
        home = Home(Path(scratch, "home"))
        home.root.mkdir()
        make_directories(home.root)
        with asyncio.Runner() as runner:
            hub, store = runner.run(_make_hub(home, agents))
            try:
                for _ in range(count):
                    runner.run(_offer(hub))
                yield _Queue(runner, hub)
            finally:
                store.close()


async def _make_hub(home: Home, agents: int) -> tuple[Hub, Store]:
    store = Store.open(home.root / "state.db")
    context = HubContext(home, load_settings(home.config_file), 1, home.root)
    hub = Hub(context, store, Factory(home.factory_socket, 1024))
    await hub.tasks.load()
    for number in range(agents):
        name = f"agent-{number}"
        agent = Agent(name=name, run=name, kind="headless", cwd="/", command=("x",), created="")
        begun = fold(None, Launched(at=1.0, run=name))
        view = fold(begun, HolderRunning(at=2.0, holder=1, child=2))
        hub.registry.put(LiveAgent(agent, view.model_copy(update={"stage": Idle()})))
    return hub, store


async def _offer(hub: Hub) -> None:
    await hub.tasks.offer(QueuedTaskRequest(prompt="x", role="nobody-has-it"))


async def _look(hub: Hub) -> None:
    """As after the end of each task."""
    for _ in range(MOVES):
        hub.tasks.dispatch()


async def _follow(hub: Hub, count: int) -> None:
    """As who follows the stream of an agent's tasks does, over and over."""

    async def follow(agent: str) -> None:
        while True:
            await hub.tasks.board.next_news(3600.0, agent)

    for number in range(count):
        hub.background.begin(follow(f"other-{number}"), f"follow {number}")
    await asyncio.sleep(0)


async def _move(hub: Hub) -> None:
    for _ in range(MOVES):
        hub.tasks.board.wake("agent-0")
        await asyncio.sleep(0)

"""The tasks that are not over: the state of each, on disk and in memory, and who waits for news.

Called by `queue`, which puts tasks in, and `driver`, which moves them. Stores moves; decides none:
`model/task_moves` does.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bullpen.errors import BullpenError, Kind
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks.rows import TaskRows, TaskSession
from bullpen.hub.tasks.run_plan import Worker
from bullpen.model.task import Cancelled, Cancelling, ErrorType, Task
from bullpen.model.task_moves import fail, move
from bullpen.model.task_shown import Progress

log = logging.getLogger("bullpen.hub")

RECORD_AGAIN_SECONDS = 2.0


@dataclass
class LiveTask:
    """A task that is not over, and its handles."""

    task: Task
    session: TaskSession
    run_output: task_run.RunOutput | None = None  # of the run that is under way
    run_ref: task_run.RunRef | None = None
    stopped_for: tuple[ErrorType, str] | None = None  # why we ended its run
    worker: Worker | None = None  # its agent's files, as they could be read last
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one move at a time
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # for the driver
    news: asyncio.Event = field(default_factory=asyncio.Event)  # another one after each time
    driver: asyncio.Task[None] | None = None
    number: int = field(default_factory=itertools.count().__next__)  # later ones have higher ones

    @property
    def progress(self) -> Progress | None:
        return self.run_output.progress if self.run_output is not None else None

    def tell(self) -> None:
        """It has moved, or its run has said more."""
        self.moved.set()
        self.news.set()
        self.news = asyncio.Event()


class Board:
    """All tasks that are not over, by id."""

    def __init__(self, rows: TaskRows) -> None:
        self.rows = rows
        self.live: dict[str, LiveTask] = {}
        self._news: dict[str, asyncio.Event] = {}  # by agent; "": of all

    async def get(self, id: str, agent: str = "") -> Task:
        """One task, over or not; of that agent, if one is named."""
        live = self.live.get(id)
        task = live.task if live else await self.rows.find(id)
        if task is None or (agent and task.agent != agent):
            raise no_task(id, agent)
        return task

    async def put(self, live: LiveTask, task: Task, session: TaskSession | None = None) -> None:
        """Its next state: on disk, then in memory, then to all who wait. Raises if it cannot be
        stored."""
        await self.rows.put(task, session, time.time())
        before, live.task = live.task.agent, task
        live.session = session or live.session
        live.tell()
        self.wake(before, task.agent)

    async def put_surely(
        self, live: LiveTask, task: Task, session: TaskSession | None = None
    ) -> None:
        """The same for what has happened anyway: a full disk must not hide it."""
        while True:
            try:
                return await self.put(live, task, session)
            except BullpenError as error:
                log.error("cannot record a task yet", extra={"task": task.id, "why": error.message})
                await asyncio.sleep(RECORD_AGAIN_SECONDS)

    async def keep_session(self, live: LiveTask, session: TaskSession) -> None:
        """Newer facts of its session, if they are any."""
        if session != live.session:
            await self.rows.keep_session(session)
            live.session = session

    async def fail(self, live: LiveTask, kind: ErrorType, message: str) -> None:
        """Over, for that reason; unless it is over, or was being cancelled."""
        async with live.lock:
            if isinstance(live.task.status, Cancelling):
                await self.put_surely(live, move(live.task, Cancelled(), time.time()))
            elif not live.task.is_over:
                await self.put_surely(live, fail(live.task, kind, message, time.time()))

    def wake(self, *agents: str) -> None:
        """A task of these agents has moved. Whoever waits for another one's sleeps on: a hundred
        agents at work must not make each task a hundred times as dear."""
        for agent in {"", *agents}:
            news = self._news.pop(agent, None)
            if news is not None:
                news.set()

    async def wait(self, id: str, is_enough: Callable[[Task], bool]) -> Task:
        """Until the task is as wanted, or over."""
        while True:
            live = self.live.get(id)
            # Before the look: what happens meanwhile is not missed.
            news = live.news if live else self._news_of("")
            task = await self.get(id)
            if task.is_over or is_enough(task):
                return task
            await news.wait()

    async def next_news(self, seconds: float, agent: str = "") -> bool:
        """Until a task of that agent has moved, or any; False if that takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._news_of(agent).wait()
        except TimeoutError:
            return False
        return True

    def _news_of(self, agent: str) -> asyncio.Event:
        return self._news.setdefault(agent, asyncio.Event())


def no_task(id: str, agent: str = "") -> BullpenError:
    """Also of a task that is not for the eyes of whoever asks."""
    of = f" of {agent}" if agent else ""
    return BullpenError(f"no task {id[:40]}{of}", hint="bullpen history", kind=Kind.NOT_FOUND)

"""The tasks that are not over: where each stands, on disk and in memory, and who is told of it.

Decides nothing. `tasks` fills it, `task_driver` moves them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bullpen.errors import BullpenError, Kind
from bullpen.hub import runs
from bullpen.hub.run_plan import Worker
from bullpen.hub.task_rows import Session, TaskRows
from bullpen.model.task import Cancelled, Cancelling, ErrorType, Task
from bullpen.model.task_moves import fail, move
from bullpen.model.task_shown import Progress

log = logging.getLogger("bullpen.hub")

RECORD_AGAIN_SECONDS = 2.0


@dataclass
class LiveTask:
    """A task that is not over, and its handles."""

    task: Task
    session: Session
    told: runs.Told | None = None  # of the run that is under way
    place: runs.Place | None = None
    stopped_for: tuple[ErrorType, str] | None = None  # why we ended its run
    worker: Worker | None = None  # its agent's files, as they could be read last
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one move at a time
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # for the driver
    said: asyncio.Event = field(default_factory=asyncio.Event)  # another one after each time
    driver: asyncio.Task[None] | None = None

    @property
    def progress(self) -> Progress | None:
        return self.told.progress if self.told is not None else None

    def tell(self) -> None:
        """It has moved, or its run has said more."""
        self.moved.set()
        self.said.set()
        self.said = asyncio.Event()


class Board:
    """All of them, by id."""

    def __init__(self, rows: TaskRows) -> None:
        self.rows = rows
        self.live: dict[str, LiveTask] = {}
        self._news = asyncio.Event()

    async def get(self, id: str, agent: str = "") -> Task:
        """One task, over or not; of that agent, if one is named."""
        live = self.live.get(id)
        task = live.task if live else await self.rows.find(id)
        if task is None or (agent and task.agent != agent):
            of = f" of {agent}" if agent else ""
            raise BullpenError(f"no task {id}{of}", hint="bullpen history", kind=Kind.NOT_FOUND)
        return task

    async def put(self, live: LiveTask, task: Task, session: Session | None = None) -> None:
        """Its next state: on disk, then in memory, then told. Raises if that cannot be: whoever
        asked is told."""
        await self.rows.put(task, session, time.time())
        live.task = task
        live.session = session or live.session
        live.tell()
        self.wake()

    async def put_surely(self, live: LiveTask, task: Task, session: Session | None = None) -> None:
        """The same for what has happened anyway: a full disk must not hide it."""
        while True:
            try:
                return await self.put(live, task, session)
            except BullpenError as error:
                log.error("cannot record a task yet", extra={"task": task.id, "why": error.message})
                await asyncio.sleep(RECORD_AGAIN_SECONDS)

    async def keep_session(self, live: LiveTask, session: Session) -> None:
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

    def wake(self) -> None:
        """A task has moved."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, id: str, is_enough: Callable[[Task], bool]) -> Task:
        """Until the task is as wanted, or over."""
        while True:
            news = self._news  # before the look: what happens meanwhile is not missed
            task = await self.get(id)
            if task.is_over or is_enough(task):
                return task
            await news.wait()

    async def next_news(self, seconds: float) -> bool:
        """Until any task has moved; False if that takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

"""Tasks: taken, given to who is free, found again after a crash, and what the API asks of them.

Each task that is not over has a driver of its own (`task_driver`), an asyncio task that ends with
it. A task is on disk before its caller is answered.
"""

import asyncio
import contextlib
import logging
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.hub import run_plan, runs, workspaces
from bullpen.hub.budgets import Budgets
from bullpen.hub.messages import Messages
from bullpen.hub.registry import Live
from bullpen.hub.supervise import Supervisor
from bullpen.hub.task_board import Board, LiveTask
from bullpen.hub.task_driver import GRACE_SECONDS, Driver
from bullpen.hub.task_rows import Session, TaskRows
from bullpen.model.state import Idle
from bullpen.model.task import Asked, Cancelling, Offered, Queued, Task, Wish, check_places, fits
from bullpen.model.task_moves import cancel, end, go_on
from bullpen.model.task_shown import Progress

log = logging.getLogger("bullpen.hub")

CONCLUDE_SECONDS = 10.0


class Tasks:
    """All that are not over; those that are, are in the database alone."""

    def __init__(self, supervisor: Supervisor, messages: Messages, budgets: Budgets) -> None:
        self._supervisor = supervisor
        self._home = supervisor.home
        self.board = Board(TaskRows(supervisor.store))
        self._driver = Driver(supervisor, self.board, messages, budgets)
        self._current: dict[str, str] = {}  # agent -> its task
        self._submitting = asyncio.Lock()
        self.may_take: Callable[[str], bool] = lambda _name: True
        """Whether an agent is ready; set by who watches over agents that take tasks."""
        self._is_loaded = False
        self._is_closed = False

    # ── what the API asks ──

    async def submit(self, name: str, asked: Asked) -> Task:
        """A task for that agent. On disk when this returns."""
        check_places(asked)
        await self._wait_concluded(name)
        async with self._submitting:
            again = await self._again(asked)
            if again is not None:
                return again
            self._taker(name)
            self._refuse_busy(name)
            session = await self._session_of(asked, name)
            await self._check(asked)
            live = self._taker(name)  # it may have been stopped meanwhile
            return await self._keep(asked, session, live.agent.name)

    async def offer(self, offered: Offered) -> Task:
        """A task for whoever is free and fits. On disk when this returns."""
        check_places(offered)
        async with self._submitting:
            again = await self._again(offered)
            if again is not None:
                return again
            session = await self._session_of(offered, "")
            await self._check(offered)
            return await self._keep(offered, session, "")

    def progress(self, id: str) -> Progress | None:
        """What the run that is under way has said so far."""
        live = self.board.live.get(id)
        return live.progress if live else None

    def open_tasks(self, agent: str = "") -> list[Task]:
        """Those that are not over."""
        return [live.task for live in self.board.live.values() if agent in ("", live.task.agent)]

    def current(self, agent: str) -> Task | None:
        """What that agent has to do now."""
        live = self.board.live.get(self._current.get(agent, ""))
        return live.task if live and not live.task.is_over else None

    async def cancel(self, id: str, agent: str = "") -> Task:
        """Answered at once; a run is ended beside."""
        task = await self.board.get(id, agent)
        live = self.board.live.get(id)
        if live is None:
            return cancel(task, time.time())  # raises: it is over
        async with live.lock:
            moved = cancel(live.task, time.time())
            if moved is not live.task:
                await self._put_cancelled(live, moved)
        if live.task.is_over and live.driver is None:  # nobody had taken it
            await self._conclude(live)
        return live.task

    async def _put_cancelled(self, live: LiveTask, moved: Task) -> None:
        try:
            await self.board.put(live, moved)
        except BullpenError:
            if not isinstance(moved.status, Cancelling):
                raise
            # A full disk is a reason to end what runs, not to let it go on.
            live.task = moved
            live.tell()

    async def continue_(self, id: str, prompt: str, request: str = "", agent: str = "") -> Task:
        """Another turn of a task that rests."""
        return await self._ask(id, agent, lambda task: go_on(task, prompt, time.time(), request))

    async def end(self, id: str, request: str = "", agent: str = "") -> Task:
        """No more turns."""
        return await self._ask(id, agent, lambda task: end(task, time.time(), request))

    async def _ask(self, id: str, agent: str, step: Callable[[Task], Task]) -> Task:
        task = await self.board.get(id, agent)
        live = self.board.live.get(id)
        if live is None:
            return step(task)  # raises, unless it was asked before: it is over
        async with live.lock:
            moved = step(live.task)
            if moved is not live.task:
                await self.board.put(live, moved)
        return live.task

    def engine_of(self, task: Task) -> str:
        """The engine that it was given to."""
        live = self._supervisor.registry.find(task.agent)
        return live.agent.engine if live else "command"

    async def end_all(self, name: str, grace: float) -> None:
        """The agent is being stopped: its task is cancelled, and waited for."""
        live = self.board.live.get(self._current.get(name, ""))
        if live is None:
            return
        with contextlib.suppress(BullpenError):  # it is over in this moment
            await self.cancel(live.task.id)
        if live.place is not None:
            await runs.stop(live.place, grace)
        if not await _ended(live, grace + 2 * GRACE_SECONDS):
            raise BullpenError(
                f"the task of {name} does not end: {live.task.id} is {live.task.state}",
                hint=f"bullpen task show {live.task.id}",
                kind=Kind.UNAVAILABLE,
            )

    # ── taking ──

    def _taker(self, name: str) -> Live:
        live = self._supervisor.registry.get(name)
        if live.agent.kind != "headless":
            raise BullpenError(
                f"{name} works in a terminal and takes no tasks",
                hint=f'bullpen send {name} "…" · or bullpen agent start',
                kind=Kind.CONFLICT,
            )
        if not live.is_running:
            raise BullpenError(
                f"{name} is not running", hint=f"bullpen agent start {name}", kind=Kind.CONFLICT
            )
        return live

    async def _wait_concluded(self, name: str) -> None:
        """A task that is over may not have let go of everything yet."""
        live = self.board.live.get(self._current.get(name, ""))
        if live is not None and live.task.is_over:
            await _ended(live, CONCLUDE_SECONDS)

    def _refuse_busy(self, name: str) -> None:
        live = self.board.live.get(self._current.get(name, ""))
        if live is not None:
            task = live.task
            raise BullpenError(
                f"{name} has a task already: {task.id} is {task.state}",
                hint=f"bullpen task show {task.id} · or bullpen task --any for whoever is free",
                kind=Kind.CONFLICT,
                details={
                    "error": "agent_busy",
                    "retryable": True,
                    "current_task": {
                        "id": task.id,
                        "started_at": task.started,
                        "prompt_preview": task.preview,
                    },
                },
            )

    async def _again(self, asked: Asked) -> Task | None:
        return await self.board.rows.find_request(asked.request) if asked.request else None

    async def _check(self, wish: Wish) -> None:
        ground = self._supervisor.ground
        await asyncio.to_thread(
            workspaces.check_wish, self._home, ground.settings, ground.person, wish
        )

    async def _session_of(self, asked: Asked, agent: str) -> Session:
        if asked.session_id is None:
            return Session(id=str(uuid.uuid4()), agent=agent)
        session = await self.board.rows.find_session(asked.session_id)
        is_here = session is not None and (
            session.agent == agent or self._is_open_to_all(session, agent)
        )
        if session is None or not is_here:
            raise BullpenError(f"no session {asked.session_id}", kind=Kind.NOT_FOUND)
        return session

    def _is_open_to_all(self, session: Session, agent: str) -> bool:
        """In the queue: whose agent is still there, or that nobody has taken yet."""
        known = not session.agent or self._supervisor.registry.find(session.agent) is not None
        return not agent and known

    async def _keep(self, asked: Asked, session: Session, agent: str) -> Task:
        kept = {name: getattr(asked, name) for name in Wish.model_fields}
        task = Task(
            id=f"t-{uuid.uuid4().hex[:12]}",
            agent=agent,
            session_id=session.id,
            request=asked.request or "",
            wish=Wish.model_validate(kept),
            env_names=tuple(sorted(asked.env)),
            role=(asked.role or "") if isinstance(asked, Offered) else "",
            labels=asked.labels if isinstance(asked, Offered) else {},
            priority=asked.priority if isinstance(asked, Offered) else 0,
            created=time.time(),
        )
        if asked.env:
            await asyncio.to_thread(run_plan.keep_variables, self._home, task.id, asked.env)
        try:
            await self.board.rows.put(task, session, task.created)
        except BaseException:
            await asyncio.to_thread(run_plan.forget_variables, self._home, task.id)
            raise
        live = self.board.live[task.id] = LiveTask(task, session)
        if agent:
            self._current[agent] = task.id
            self._drive(live)
        else:
            self.dispatch()
        return task

    def dispatch(self) -> None:
        """Give tasks that wait to agents that are free."""
        if self._is_closed or not self._is_loaded:
            return  # who is free is not known before all tasks are
        waiting = [
            live
            for live in self.board.live.values()
            if isinstance(live.task.status, Queued) and live.driver is None
        ]
        for live in sorted(waiting, key=lambda each: -each.task.priority):
            name = self._free_agent(live)
            if name:
                self._current[name] = live.task.id
                self._claim(live.session, name)
                self._drive(live, name)

    def _claim(self, session: Session, agent: str) -> None:
        """Others that wait for the same conversation wait for that agent from now on."""
        for live in self.board.live.values():
            if live.session.id == session.id:
                live.session = live.session.model_copy(update={"agent": agent})

    def _free_agent(self, live: LiveTask) -> str:
        wanted = live.session.agent  # a conversation belongs to one agent
        for each in self._supervisor.registry:
            agent = each.agent
            if (
                agent.kind == "headless"
                and each.is_running
                and agent.name not in self._current
                and wanted in ("", agent.name)
                and fits(live.task, agent.role, agent.labels)
                and self.may_take(agent.name)
            ):
                return agent.name
        return ""

    # ── after a crash ──

    async def load(self) -> None:
        """Go on with what earlier hubs left."""
        for task in await self.board.rows.open():
            session = await self.board.rows.find_session(task.session_id)
            live = LiveTask(task, session or Session(id=task.session_id, agent=task.agent))
            self.board.live[task.id] = live
            if task.agent:
                self._current[task.agent] = task.id
        await self._sweep()
        for live in list(self.board.live.values()):
            if live.task.agent:
                self._drive(live)
        self._is_loaded = True
        self.dispatch()

    async def _sweep(self) -> None:
        """What a killed hub did not come to: variables, logs and locks of tasks that are over, and
        clones."""
        await asyncio.to_thread(run_plan.sweep_variables, self._home, set(self.board.live))
        await asyncio.to_thread(workspaces.sweep_clones, self._home)
        for each in self._supervisor.registry:
            if each.agent.kind == "headless":
                known = await self.board.rows.ids(each.agent.name)
                await asyncio.to_thread(run_plan.sweep_tasks, self._home, each.agent.name, known)
        settings = self._supervisor.settings
        for session in await self.board.rows.worktree_sessions():
            if session.git_dir and (Path(session.git_dir) / "locked").exists():
                # Who still works there locks it again.
                await asyncio.to_thread(workspaces.unlock_tree, self._home, settings, session)

    def close(self) -> None:
        """The hub stops: runs go on in their holders, the next hub goes on with them."""
        self._is_closed = True
        for live in self.board.live.values():
            if live.driver is not None:
                live.driver.cancel()

    # ── driving ──

    def _drive(self, live: LiveTask, agent: str = "") -> None:
        driver = asyncio.create_task(self._driven(live, agent), name=f"task {live.task.id}")
        live.driver = driver

    async def _driven(self, live: LiveTask, agent: str) -> None:
        """Top of a driver: what fails here fails the task, and nothing else."""
        try:
            if agent:
                await self._assign(live, agent)
            await self._driver.to_the_end(live)
        except asyncio.CancelledError:
            if self._is_closed:
                raise
        except Exception as error:
            log.exception("a task could not be driven", extra={"task": live.task.id})
            why = error.message if isinstance(error, BullpenError) else repr(error)
            await self.board.fail(live, "setup_failed", f"the hub failed: {why}")
        if not self._is_closed:
            await self._conclude(live)

    async def _assign(self, live: LiveTask, agent: str) -> None:
        """From the queue to an agent: from now on it is that agent's."""
        async with live.lock:
            if live.task.is_over:
                return
            task = live.task.model_copy(update={"agent": agent})
            # It has waited: its conversation may have gone on meanwhile.
            newest = await self.board.rows.find_session(live.session.id) or live.session
            session = newest.model_copy(update={"agent": agent})
            await self.board.put_surely(live, task, session)

    # ── the end ──

    async def _conclude(self, live: LiveTask) -> None:
        """The task is over: everything that it held is free, whatever goes wrong with that."""
        task = live.task
        try:
            await asyncio.to_thread(run_plan.forget_variables, self._home, task.id)
            await self._driver.say(live, Idle())
            await self._forget_old(task.agent)
        except (BullpenError, OSError) as error:
            # The next task, or the next hub, does it.
            log.warning("cannot tidy up", extra={"task": task.id, "why": str(error)})
        finally:
            self.board.live.pop(task.id, None)
            for agent in [name for name, id in self._current.items() if id == task.id]:
                del self._current[agent]
            live.tell()
            self.board.wake()
            self.dispatch()

    async def _forget_old(self, agent: str) -> None:
        limit = self._supervisor.settings.history_limit
        live = self._supervisor.registry.find(agent)
        if live is not None:
            with contextlib.suppress(BullpenError):
                worker = await asyncio.to_thread(run_plan.load_worker, self._home, live.agent)
                limit = worker.file.history_limit or limit
        dropped = await self.board.rows.drop_old(agent, limit)
        for id in dropped if agent else ():  # nobody's was never begun
            place = run_plan.task_directory(self._home, agent, id)
            await asyncio.to_thread(shutil.rmtree, place, True)


async def _ended(live: LiveTask, seconds: float) -> bool:
    """Whether its driver comes to its end within that time."""
    if live.driver is None:
        return True
    return bool((await asyncio.wait({live.driver}, timeout=seconds))[0])

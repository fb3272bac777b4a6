"""The queue of tasks: taken from callers, given to agents that are free, concluded when over.

Called by `http/tasks` and by `agents`. Loads the open tasks of an earlier hub. Each task that is
not over has a `driver` of its own, an asyncio task that ends with it. A task is on disk before its
caller is answered.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents import sessions
from bullpen.hub.agents.program import check_login
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.context import HubContext
from bullpen.hub.tasks import refusals, run_plan, workspaces
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks.board import Board, LiveTask
from bullpen.hub.tasks.driver import Driver
from bullpen.hub.tasks.leftovers import Leftovers
from bullpen.hub.tasks.limits import TaskLimits
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.run_plan import load_worker
from bullpen.hub.tasks.run_watch import GRACE_SECONDS
from bullpen.hub.tasks.waiting import Need, WaitingTasks, choose_agent
from bullpen.model.agent import Agent
from bullpen.model.event import Event
from bullpen.model.state import Idle
from bullpen.model.task import (
    Cancelling,
    Giver,
    Queued,
    QueuedTaskRequest,
    Task,
    TaskRequest,
    Wish,
    check_directory,
    check_fleet,
)
from bullpen.model.task_moves import cancel, end, go_on
from bullpen.model.task_shown import Progress

log = logging.getLogger("bullpen.hub")

CONCLUDE_SECONDS = 10.0
KILLED_SECONDS = 5.0  # that the start of a hub waits for; the rest goes on in the background


class TaskQueue:
    """All tasks that are not over. Those that are over are in the database alone."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        board: Board,
        driver: Driver,
        limits: TaskLimits,
    ) -> None:
        self._context = context
        self._home = context.home
        self._registry = registry
        self.board = board
        self.driver = driver
        self._limits = limits
        self._current: dict[str, str] = {}  # agent -> its task
        self._waiting = WaitingTasks()
        self._submitting = asyncio.Lock()
        self._leftovers = Leftovers(context, registry, board.rows, self._submitting)
        self.fleet_asked = asyncio.Event()  # a task for the fleet: `fleet_tasks` offers it
        self._is_loaded = False
        self._is_closed = False

    # ── what the API asks ──

    async def submit(self, name: str, request: TaskRequest, director: str = "") -> Task:
        """A task for that agent, given by that director or by the owner. On disk when this
        returns."""
        check_directory(request)
        await self._wait_concluded(name)
        async with self._submitting:
            again = await self.find_again(request, director)
            if again is not None:
                return again
            self._refuse_busy(self._get_task_agent(name))
            session = await self._session_of(request, name, director)
            await self.check_wish(request)
            agent = self._get_task_agent(name).agent
            await asyncio.to_thread(self.check_login, agent, request.env)
            live = self._get_task_agent(name)  # it may have been stopped meanwhile
            return await self._create_task(request, session, live.agent.name, director)

    async def offer(
        self, request: QueuedTaskRequest, director: str = "", giver: Giver | None = None
    ) -> Task:
        """A task for whoever is free and fits, or for that agent when it is free. On disk when this
        returns. `giver`: the agent that gives it."""
        check_directory(request)
        if request.fleet:
            check_fleet(request)
        agent = request.agent or ""
        if agent and (request.role or request.labels):
            raise BullpenError("agent says who takes the task: no role and no labels beside it")
        async with self._submitting:
            again = await self.find_again(request, director)
            if again is not None:
                return again
            if agent:
                target = self._get_task_agent(agent).agent
                await asyncio.to_thread(self.check_login, target, request.env)
            session = await self._session_of(request, agent, director)
            await self.check_wish(request)
            return await self._create_task(request, session, agent, director, giver)

    def progress(self, id: str) -> Progress | None:
        """What the run that is under way has said so far."""
        live = self.board.live.get(id)
        return live.progress if live else None

    def open_tasks(self, agent: str = "", director: str = "") -> list[Task]:
        """The tasks that are not over: everybody's, that agent's, or what that director gave."""
        tasks = [live.task for live in self.board.live.values()]
        return [
            task for task in tasks if agent in ("", task.agent) and director in ("", task.director)
        ]

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
        return await self._apply(id, agent, lambda task: go_on(task, prompt, time.time(), request))

    async def end(self, id: str, request: str = "", agent: str = "") -> Task:
        """No more turns."""
        return await self._apply(id, agent, lambda task: end(task, time.time(), request))

    async def _apply(self, id: str, agent: str, step: Callable[[Task], Task]) -> Task:
        """Make that move, and store it."""
        task = await self.board.get(id, agent)
        live = self.board.live.get(id)
        if live is None:
            return step(task)  # raises, unless it was asked before: it is over
        async with live.lock:
            moved = step(live.task)
            if moved is not live.task:
                await self.board.put(live, moved)
        return live.task

    async def put_elsewhere(self, live: LiveTask, step: Callable[[Task], Task]) -> None:
        """How a task stands that an agent of the fleet does."""
        async with live.lock:
            if live.task.is_over:
                return
            moved = step(live.task)
            if moved != live.task:
                await self.board.put_surely(live, moved)
        if live.task.is_over:
            await self._conclude(live)

    def engine_of(self, task: Task) -> str:
        """The engine that it was given to."""
        live = self._registry.find(task.agent)
        return live.agent.engine if live else "command"

    async def end_all(self, name: str, grace: float) -> None:
        """The agent is being stopped: its task is cancelled, and waited for."""
        live = self.board.live.get(self._current.get(name, ""))
        if live is None:
            return
        with contextlib.suppress(BullpenError):  # it is over in this moment
            await self.cancel(live.task.id)
        if live.run_ref is not None:
            await task_run.stop(live.run_ref, grace)
        if not await _ended(live, grace + 2 * GRACE_SECONDS):
            raise BullpenError(
                f"the task of {name} does not end: {live.task.id} is {live.task.state}",
                hint=f"bullpen task show {live.task.id}",
                kind=Kind.UNAVAILABLE,
            )

    # ── taking ──

    def _get_task_agent(self, name: str) -> LiveAgent:
        live = self._registry.get(name)
        refusals.refuse_none(live)
        return live

    async def _wait_concluded(self, name: str) -> None:
        """A task that is over may not have let go of everything yet."""
        live = self.board.live.get(self._current.get(name, ""))
        if live is not None and live.task.is_over:
            await _ended(live, CONCLUDE_SECONDS)

    def _refuse_busy(self, live: LiveAgent) -> None:
        until = self._limits.parked_until(live)
        if until is not None:
            raise refusals.limited(live.agent.name, until)
        current = self.board.live.get(self._current.get(live.agent.name, ""))
        if current is not None:
            raise refusals.busy(live.agent.name, current.task)

    async def find_again(self, request: TaskRequest, director: str = "") -> Task | None:
        """The task of an earlier request that is sent again after a lost answer. A director is
        told nothing of somebody else's."""
        task = await self.board.rows.find_request(request.request) if request.request else None
        if task is not None and director and task.director != director:
            raise BullpenError("this request was somebody else's", kind=Kind.CONFLICT)
        return task

    async def check_wish(self, wish: Wish) -> None:
        """Raise if the task could not work where it wants to."""
        context = self._context
        await asyncio.to_thread(
            workspaces.check_wish, self._home, context.settings, context.person, wish
        )

    def check_login(self, agent: Agent, task_env: Mapping[str, str]) -> None:
        """Before anything runs. What is wrong with its files is the task's failure, not this."""
        try:
            worker = load_worker(self._home, agent)
            launch_env = sessions.load_launch_env(self._home, agent.name)
        except BullpenError:
            return
        agent = agent.model_copy(update={"is_sandboxed": worker.is_sandboxed})
        check_login(self._context, agent, worker.role, {**launch_env.env, **task_env})

    async def _session_of(self, request: TaskRequest, agent: str, director: str) -> TaskSession:
        if request.session_id is None:
            named = workspaces.read_named(request)
            return TaskSession(id=str(uuid.uuid4()), agent=agent, named=named)
        session = await self.board.rows.find_session(request.session_id)
        is_here = session is not None and (
            session.agent == agent or self._is_open_to_all(session, agent)
        )
        rows = self.board.rows
        is_theirs = not director or await rows.has_session(request.session_id, director)
        if session is None or not is_here or not is_theirs:
            raise BullpenError(f"no session {request.session_id}", kind=Kind.NOT_FOUND)
        return session

    def _is_open_to_all(self, session: TaskSession, agent: str) -> bool:
        """In the queue: whose agent is still there, or that nobody has taken yet."""
        known = not session.agent or self._registry.find(session.agent) is not None
        return not agent and known

    async def _create_task(
        self,
        request: TaskRequest,
        session: TaskSession,
        agent: str,
        director: str,
        giver: Giver | None = None,
    ) -> Task:
        """Store a new task, and give it to its agent, or to the queue if it is for that."""
        fields = {name: getattr(request, name) for name in Wish.model_fields}
        task = Task(
            id=f"t-{uuid.uuid4().hex[:12]}",
            agent=agent,
            session_id=session.id,
            request=request.request or "",
            director=director,
            giver=giver,
            wish=Wish.model_validate(fields),
            env_names=tuple(sorted(request.env)),
            role=(request.role or "") if isinstance(request, QueuedTaskRequest) else "",
            labels=request.labels if isinstance(request, QueuedTaskRequest) else {},
            priority=request.priority if isinstance(request, QueuedTaskRequest) else 0,
            fleet=isinstance(request, QueuedTaskRequest) and request.fleet,
            created=time.time(),
        )
        if request.env:
            await asyncio.to_thread(run_plan.keep_variables, self._home, task.id, request.env)
        try:
            await self.board.rows.put(task, session, task.created)
        except BaseException:
            await asyncio.to_thread(run_plan.forget_variables, self._home, task.id)
            raise
        live = self.board.live[task.id] = LiveTask(task, session)
        if task.fleet:
            self.fleet_asked.set()
            return task
        if agent and not isinstance(request, QueuedTaskRequest):
            self._current[agent] = task.id
            self._start_driver(live)
        else:
            self._waiting.put(live)
            if choose_agent(live, self.list_free()):  # the others have looked before, in vain
                self.dispatch()
        return task

    def notice(self, events: Iterable[Event]) -> None:
        """Told of every committed event: an agent that waited for a rate limit may go on."""
        if any(event.kind == "agent.resumed" for event in events):
            self.dispatch()

    def dispatch(self) -> None:
        """Give tasks that wait to agents that are free."""
        if self._is_closed or not self._is_loaded:
            return  # who is free is not known before all tasks are
        free = self.list_free() if self._waiting else {}
        in_vain: set[Need] = set()
        while free and (taken := self._waiting.take(free, in_vain)):
            live, name = taken
            del free[name]
            self._current[name] = live.task.id
            live.session = live.session.model_copy(update={"agent": name})
            self._waiting.claim(live.session.id, name)
            self._start_driver(live, name)

    def list_free(self) -> dict[str, Agent]:
        """The agents that may have a task now, by name."""
        if self._is_closed or not self._is_loaded:
            return {}
        return {
            live.agent.name: live.agent
            for live in self._registry
            if live.agent.name not in self._current
            and live.view.is_ready
            and self._limits.parked_until(live) is None
        }

    # ── after a crash ──

    async def load(self) -> None:
        """Go on with what earlier hubs left."""
        for task in await self.board.rows.open():
            session = await self.board.rows.find_session(task.session_id)
            live = LiveTask(task, session or TaskSession(id=task.session_id, agent=task.agent))
            self.board.live[task.id] = live
            if task.fleet:
                continue  # `fleet_tasks` goes on with it
            if isinstance(task.status, Queued):
                self._waiting.put(live)
            else:
                self._current[task.agent] = task.id
        await self._leftovers.remove_all(set(self.board.live))
        for live in list(self.board.live.values()):
            if not isinstance(live.task.status, Queued) and not live.task.fleet:
                self._start_driver(live)
        self._is_loaded = True
        self.dispatch()
        await self._end_killed()

    async def _end_killed(self) -> None:
        """Tasks of agents that a person has killed with the whole home are over before anybody can
        ask for them."""
        killed = [live for live in self.board.live.values() if self.driver.is_killed(live)]
        drivers = [live.driver for live in killed if live.driver is not None]
        if drivers:
            await asyncio.wait(drivers, timeout=KILLED_SECONDS)

    def leave(self) -> None:
        """The hub stops: runs go on in their holders, the next hub goes on with them."""
        self._is_closed = True
        for live in self.board.live.values():
            if live.driver is not None:
                live.driver.cancel()

    # ── driving ──

    def _start_driver(self, live: LiveTask, agent: str = "") -> None:
        """Begin the task's driver; `agent` is who takes it from the queue."""
        driver = asyncio.create_task(self._drive_safely(live, agent), name=f"task {live.task.id}")
        live.driver = driver

    async def _drive_safely(self, live: LiveTask, agent: str) -> None:
        """Top of a driver: what fails here fails the task, and nothing else."""
        try:
            if agent:
                await self._assign(live, agent)
            await self.driver.to_the_end(live)
        except asyncio.CancelledError:
            if self._is_closed:
                raise
        except Exception as error:
            log.exception("a task could not be driven", extra={"task": live.task.id})
            why = error.message if isinstance(error, BullpenError) else repr(error)
            await self.board.fail(live, "setup_failed", f"the hub failed: {why}")
        if self._is_closed:
            return
        if live.task.is_over:
            await self._conclude(live)
        else:
            self._put_back(live)

    def _put_back(self, live: LiveTask) -> None:
        """It met a rate limit: it waits in its old place, for its agent, and its directory is free
        meanwhile."""
        live.driver = live.run_ref = None
        if isinstance(live.task.status, Queued):
            self._waiting.put(live)
        self._free_agent_of(live.task)

    async def _assign(self, live: LiveTask, agent: str) -> None:
        """From the queue to an agent: from now on it is that agent's."""
        async with live.lock:
            if live.task.is_over:
                return
            task = live.task.model_copy(update={"agent": agent})
            # It has waited: its conversation may have gone on meanwhile.
            newest = await self.board.rows.find_session(live.session.id) or live.session
            session = newest.model_copy(update={"agent": agent})
            if task != live.task or session != newest:  # else it is back from a rate limit
                await self.board.put_surely(live, task, session)
            live.session = session

    # ── the end ──

    async def _conclude(self, live: LiveTask) -> None:
        """Free all that a task used, whatever goes wrong with that. Called when the task is over
        and its driver has ended, but not by a hub that stops or is killed in between: the next hub
        loads open tasks only, and its `load` removes what is left. What has to follow from each
        end of a task is the business of a part in `hub/parts.py` whose `load` and
        `notice` look for `task.state`.
        """
        task = live.task
        self._waiting.drop(live)  # before anything else can happen: it was cancelled there
        try:
            await asyncio.to_thread(run_plan.forget_variables, self._home, task.id)
            await self.driver.say(live, Idle())
            others = [each.task for each in self.board.live.values() if each is not live]
            await self._leftovers.remove_empty(task, live.session, others)
            await self._leftovers.forget_old(task.agent, live.worker)
        except (BullpenError, OSError) as error:
            # The next task, or the next hub, does it.
            log.warning("cannot tidy up", extra={"task": task.id, "why": str(error)})
        finally:
            self.board.live.pop(task.id, None)
            live.tell()
            self._free_agent_of(task)

    def _free_agent_of(self, task: Task) -> None:
        agents = [name for name, id in self._current.items() if id == task.id]
        for agent in agents:
            del self._current[agent]
        self.board.wake(*agents, task.agent)
        self.dispatch()


async def _ended(live: LiveTask, seconds: float) -> bool:
    """Whether its driver comes to its end within that time."""
    if live.driver is None:
        return True
    return bool((await asyncio.wait({live.driver}, timeout=seconds))[0])

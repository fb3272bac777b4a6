"""Task agents: agents without a terminal that take tasks, from their start to their end.

One of the two kinds of agents (`agents/kinds`). A start reads the agent's file, binds its port and
then looks for its engine; only after that the agent takes tasks. How far it is stands in its view,
as a stage (`model/state`). The tasks themselves are in `queue`; what a change of its file means, in
`agent_config`.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.component import mdns
from bullpen.component.journal import FILE as JOURNAL
from bullpen.component.journal import Journal
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Description
from bullpen.hub.agents.observe import Observer, observe_now, started_draft, state_draft
from bullpen.hub.agents.plan import Plan, plan_headless
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.stop import note_stopping
from bullpen.hub.agents.watch import Watch
from bullpen.hub.background import Background, in_daemon_thread
from bullpen.hub.context import HubContext
from bullpen.hub.kept_ports import KeptPorts
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.store.events import find_last
from bullpen.hub.store.store import Store
from bullpen.hub.tasks import agent_config, run_plan
from bullpen.hub.tasks.agent_log import TaskAgent, follow_tasks
from bullpen.hub.tasks.agent_status import make_status, public_status
from bullpen.hub.tasks.board import Board
from bullpen.hub.tasks.engine_check import find_version
from bullpen.hub.tasks.ports import AgentPorts
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.model.agent import Agent
from bullpen.model.agent_file import AgentFile
from bullpen.model.component import Status
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.state import Draining, Errored, Idle, Stage, Staged, Starting
from bullpen.model.task import Resting, Task

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 5.0
FREE_SECONDS = 30.0
WORK = "work"  # directories of conversations, unless the agent's file names another one


class TaskAgents:
    """All task agents, by name."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        observer: Observer,
        watch: Watch,
        agent_sockets: AgentSockets,
        board: Board,
        tasks: TaskQueue,
        background: Background,
        kept_ports: KeptPorts,
    ) -> None:
        self._context = context
        self._home = context.home
        self._store = store
        self._registry = registry
        self._observer = observer
        self._watch = watch
        self._agent_sockets = agent_sockets
        self._board = board
        self._tasks = tasks
        self._background = background
        is_announced = context.settings.discovery.method == "mdns"
        self.ports = AgentPorts(self._announce if is_announced else None, kept_ports)
        self._task_agents: dict[str, TaskAgent] = {}
        self._configuring = asyncio.Lock()

    # ── what every kind of agent has ──

    def plan(self, request: Launch, name: str, last: Agent | None) -> Plan:
        return plan_headless(self._context, request, name, last)

    def plan_again(self, last: Agent, launch_env: sessions.LaunchEnv) -> Plan:
        """As its file says now, or with the role it had."""
        has_file = last.name in list_agent_files(self._home)
        request = Launch(
            kind="headless",
            name=last.name,
            role=None if has_file else last.role,
            pod=last.pod or None,
            overrides=last.overrides,
            cwd="/",
            env=launch_env.env,
            umask=launch_env.umask,
        )
        return self.plan(request, last.name, last)

    async def start(self, plan: Plan, live: LiveAgent) -> None:
        del plan  # nothing is run now: each task is planned by itself
        await self._open(live)
        await self._agent_sockets.open(live.agent)
        await self._observer.record(started_draft(live.agent), state_draft(live))
        self._begin_check(live)

    async def asked_again(self, request: Launch, live: LiveAgent) -> None:
        """There is nothing that a killed hub could have left undone."""

    async def adopt(self, live: LiveAgent) -> None:
        """What is wrong with its file now does not end it."""
        problem = ""
        try:
            await self._open(live)
        except BullpenError as error:
            problem = _words(error)
        if await self._find_stopping(live.agent) is not None:
            # No new tasks from the beginning. `run` goes on with it, when tasks are known again.
            observe_now(live, _staged(Draining(), "told to leave"))
        elif problem:
            self._task_agents[live.agent.name].note("error", problem)
            observe_now(live, _staged(Errored(reason=problem), "read its file"))
        try:
            await self._observer.record(started_draft(live.agent), state_draft(live))
        finally:
            if isinstance(live.view.stage, Starting):
                self._begin_check(live)

    async def stop(self, live: LiveAgent, seconds: float) -> None:
        """No more tasks, and the one it has is cancelled."""
        name = live.agent.name
        await self._set_stage(live, Draining(), "told to stop")
        task_agent = self._task_agents.get(name)
        if task_agent is not None:
            await self._none_given(name, task_agent)
        with contextlib.suppress(BullpenError):  # it came to its end in this moment
            await self._tasks.end_all(name, seconds)
        async with asyncio.timeout(seconds + FREE_SECONDS):
            await self._free(name)
        self._leave(name)
        await self._watch.ended(live, {"code": 0, "ended": time.time()})

    async def take_back(self, plan: Plan, live: LiveAgent) -> None:
        del plan
        self._leave(live.agent.name)

    def describe(self, live: LiveAgent) -> Description:
        name = live.agent.name
        if isinstance(live.view.stage, Draining):
            return Description(
                f"{name} leaves, and has not left yet",
                f"wait for its task, or end it: bullpen agent stop {name} --force",
            )
        return Description(f"{name} is running", f'bullpen task {name} "…"')

    def reason_to_keep(self, agent: Agent) -> str:
        """Whatever is forced: nothing else keeps what its tasks left, and one that waits in the
        queue may go on with one of its conversations."""
        waiting = list(self._board.live.values())  # this runs in a thread
        if any(task.session.agent == agent.name for task in waiting):
            return "a task waits for it"
        work = self._home.session(agent.name) / WORK
        if any(files for _path, _directories, files in os.walk(work)):
            return f"its tasks left files in {work}"
        return ""

    async def _announce(self, name: str, port: int) -> None:
        await mdns.announce(public_status(name, self._home.id), port)

    def _leave(self, name: str) -> None:
        self.ports.close(name)
        task_agent = self._task_agents.pop(name, None)
        works = (
            (task_agent.checking, task_agent.draining, task_agent.following)
            if task_agent is not None
            else ()
        )
        for work in works:
            if work is not None and work is not asyncio.current_task():
                work.cancel()

    # ── stages ──

    async def _open(self, live: LiveAgent) -> None:
        """Read its file and bind its port. Raises if it has none that serves."""
        observe_now(live, _staged(Starting(), "looks for its engine"))
        agent = live.agent
        path = self._home.session(agent.name) / JOURNAL
        journal = await asyncio.to_thread(Journal.opened, log, agent.name, path)
        task_agent = self._task_agents[agent.name] = TaskAgent(live=live, journal=journal)
        worker = await asyncio.to_thread(run_plan.load_worker, self._home, agent)
        task_agent.log_level = worker.file.log_level
        if worker.file.port is not None:
            await self.ports.open(agent.name, worker.file.port)
        task_agent.note("info", "started", port=worker.file.port)
        work = follow_tasks(agent.name, task_agent, self._tasks)
        task_agent.following = self._background.begin(work, f"log of {agent.name}")

    def _begin_check(self, live: LiveAgent) -> None:
        task_agent = self._task_agents[live.agent.name]
        work = self._check(live, task_agent)
        task_agent.checking = self._background.begin(work, f"check of {live.agent.name}")

    async def _check(self, live: LiveAgent, task_agent: TaskAgent) -> None:
        """Its engine is there, and new enough; tasks wait for that."""
        agent = live.agent

        def look() -> str:
            launch_env = sessions.load_launch_env(self._home, agent.name)
            role = run_plan.load_worker(self._home, agent).role
            return find_version(agent.engine, {**launch_env.env, **role.env})

        try:
            version = await in_daemon_thread(look)
        except BullpenError as error:
            problem = _words(error)
        except OSError as error:  # a program of another machine's, say
            problem = f"{agent.engine} cannot be started: {error.strerror}"
        except Exception as error:  # else it would be starting for ever
            log.exception("an engine cannot be looked at")
            problem = f"a bug: {type(error).__name__}: {error}"
        else:
            task_agent.note("info", "takes tasks", engine=f"{agent.engine} {version}")
            await self._set_stage(live, Idle(), "waits for tasks")
            self._tasks.dispatch()
            return
        task_agent.note("error", problem)
        await self._set_stage(live, Errored(reason=problem), "looked for its engine")

    async def _set_stage(self, live: LiveAgent, stage: Stage, says: str) -> None:
        try:
            await self._observer.observe(live, _staged(stage, says))
        except BullpenError as error:  # a full disk: the stage holds all the same
            extra = {"agent": live.agent.name, "why": error.message}
            log.error("cannot record a stage", extra=extra)

    @contextlib.contextmanager
    def giving(self, name: str) -> Iterator[None]:
        """While a task is given to it: raises if it takes none, and it does not leave before the
        task is known."""
        self._refuse(name)
        task_agent = self._task_agents.get(name)
        if task_agent is None:  # whoever gives the task finds out that it is not there
            yield
            return
        task_agent.given += 1
        try:
            yield
        finally:
            task_agent.given -= 1
            self._board.wake(name)

    async def _none_given(self, name: str, task_agent: TaskAgent) -> None:
        while task_agent.given:
            await self._board.next_news(LOOK_SECONDS, name)

    def _refuse(self, name: str) -> None:
        """Raise if it takes no tasks, and say whether it will."""
        live = self._registry.find(name)
        if live is None or not live.is_running or not live.agent.takes_tasks:
            return  # whoever gives the task finds out
        match live.view.stage:
            case Errored(reason=reason):
                message = f"{name} cannot work: {reason}"
                hint = f"mend it, then bullpen agent stop {name} and start it again"
            case Draining():
                raise BullpenError(
                    f"{name} is about to leave",
                    hint=f"then bullpen agent start {name}",
                    kind=Kind.UNAVAILABLE,
                )
            case Idle():
                return
            case _:
                raise BullpenError(
                    f"{name} is starting",
                    hint="ask again in a moment",
                    kind=Kind.UNAVAILABLE,
                    details={"error": "starting"},
                )
        raise BullpenError(message, hint=hint, kind=Kind.UNAVAILABLE, details={"retryable": False})

    # ── what the API asks ──

    async def status(self, name: str, home_id: str) -> Status:
        """The agent as a component."""
        live = self._registry.get(name)
        worker = await asyncio.to_thread(
            run_plan.find_worker, self._home, live.agent
        ) or run_plan.plain_worker(live.agent)
        task_agent, task = self._get(name), self._tasks.current(name)
        port = self.ports.number(name)
        return make_status(worker, task_agent, task, port, home_id)

    def _get(self, name: str) -> TaskAgent:
        task_agent = self._task_agents.get(name)
        if task_agent is None:
            raise BullpenError(
                f"{name} is not running", hint=f"bullpen agent start {name}", kind=Kind.CONFLICT
            )
        return task_agent

    # ── leaving ──

    async def shut_down(self, name: str, seconds: float, *, force: bool) -> None:
        """Let what runs come to its end, within that time; then the agent is stopped. What still
        runs then is cancelled with `force`, and else goes on before the agent leaves. On disk when
        this returns: a hub that comes after a crash goes on with it."""
        task_agent, live = self._get(name), self._registry.get(name)
        until = time.time() + seconds
        data = {"run": live.agent.run, "until": until, "force": force}
        await self._store.append(Draft(time.time(), "agent.stopping", name, data))
        await self._set_stage(live, Draining(), "told to leave")
        task_agent.note("info", "told to leave", drain_seconds=seconds, force=force)
        self._begin_to_leave(live, task_agent, until, force)

    async def run(self) -> None:
        """Stop the task agents that an earlier hub had told to leave. Called after tasks were
        loaded."""
        for name, task_agent in list(self._task_agents.items()):
            live = self._registry.get(name)
            if task_agent.is_draining and task_agent.draining is None:
                # The event may have expired, or never came to the disk.
                stopping = await self._find_stopping(live.agent) or (0.0, False)
                self._begin_to_leave(live, task_agent, *stopping)

    async def _find_stopping(self, agent: Agent) -> tuple[float, bool] | None:
        """Until when an earlier hub let it go on, and whether that is the end of its task, too."""
        event = await self._store.read(find_last(agent.name, "agent.stopping"))
        if event is None or event.data.get("run") != agent.run:
            return None
        # Without a time it was stopped at once, and its task with it.
        return float(event.data.get("until", 0.0)), bool(event.data.get("force", True))

    def _begin_to_leave(
        self, live: LiveAgent, task_agent: TaskAgent, until: float, force: bool
    ) -> None:
        if task_agent.checking is not None:
            task_agent.checking.cancel()
        work = self._drain(live, task_agent, until, force)
        task_agent.drain(self._background.begin(work, f"drain {live.agent.name}"))

    async def _drain(
        self, live: LiveAgent, task_agent: TaskAgent, until: float, force: bool
    ) -> None:
        try:
            await self._none_given(live.agent.name, task_agent)
            await self._wait_for_tasks(live.agent.name, until, force)
            async with live.lock:  # a start under way comes first
                pass
            if live.is_running:
                seconds = self._context.settings.stop_grace.total_seconds()
                await note_stopping(self._observer, live, seconds)
                await self.stop(live, seconds)
        except Exception as error:
            why = error.message if isinstance(error, BullpenError) else type(error).__name__
            task_agent.note("error", f"cannot leave: {why}")
            raise

    async def _wait_for_tasks(self, name: str, until: float, force: bool) -> None:
        """Until it has no task; with `force` not longer than until then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.time())):
                await self._free(name)
        while (task := self._tasks.current(name)) is not None:
            if task.is_over:
                await self._board.next_news(LOOK_SECONDS, name)  # what it had is just being freed
            elif isinstance(task.status, Resting):
                try:
                    await self._tasks.end(task.id)
                except BullpenError:  # continued or ended in this moment, or the disk is full
                    await self._board.next_news(LOOK_SECONDS, name)
            elif force:
                return
            else:
                self.ports.close(name)  # it has left, but for its task
                await self._board.wait(task.id, _rests)

    async def _free(self, name: str) -> None:
        """Until it has no task."""
        while self._tasks.current(name) is not None:
            await self._board.next_news(LOOK_SECONDS, name)

    # ── files ──

    def load_file(self, name: str) -> tuple[AgentFile, bool]:
        """What the agent's file says, and whether it has one. Reads the disk."""
        return agent_config.load(self._home, self._registry.get(name).agent)

    async def configure(self, name: str, fields: Mapping[str, Any]) -> agent_config.Configured:
        """Another file in place of the agent's. Checked before anything is written."""
        async with self._configuring:
            agent = self._registry.get(name).agent
            done = await asyncio.to_thread(agent_config.rewrite, self._home, agent, fields)
        task_agent = self._task_agents.get(name)
        if task_agent is not None:
            task_agent.log_level = done.file.log_level
            task_agent.note("info", "configured", live=list(done.live), restart=list(done.restart))
        return done


def _staged(stage: Stage, says: str) -> Staged:
    return Staged(at=time.time(), says=says, stage=stage)


def _words(error: BullpenError) -> str:
    return f"{error.message} · {error.hint}" if error.hint else error.message


def _rests(task: Task) -> bool:
    return isinstance(task.status, Resting)

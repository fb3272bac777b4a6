"""Agents that take tasks, as components: their stages, their ports, their draining.

An agent is seated when it is started: its file is checked, its port bound, and then its engine
looked for; only after that it takes tasks. The tasks themselves are `tasks`', what a change of
its file means is `seat_files`'.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bullpen import __version__, proc
from bullpen.agent_files import list_agent_files, load_agent_file
from bullpen.component import mdns
from bullpen.component.journal import Journal
from bullpen.engines.programs import find_program
from bullpen.engines.versions import PROGRAMS, is_enough, parse_version, written
from bullpen.errors import BullpenError, Kind
from bullpen.hub import run_plan, seat_files, sessions
from bullpen.hub.ports import Ports
from bullpen.hub.supervise import Supervisor
from bullpen.hub.tasks import Tasks
from bullpen.hub.threads import in_loose_thread
from bullpen.model.agent import Agent
from bullpen.model.agent_file import AgentFile
from bullpen.model.component import CurrentTask, Interface, Level, Phase, PublicStatus, Status
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.task import Failed, Resting, Task

log = logging.getLogger("bullpen.hub")

VERSION_SECONDS = 60.0
LOOK_SECONDS = 5.0
FREE_SECONDS = 30.0
FOLLOW_SECONDS = 3600.0
INTERFACES: tuple[Interface, ...] = get_args(Interface)  # an agent has them all
LEVELS: tuple[Level, ...] = get_args(Level)  # the quietest last

# Of a task's life; what it says and is told is none of the log's.
TASK_LEVELS: dict[str, Level] = {
    "queued": "debug",
    "idle": "debug",
    "cancelling": "debug",
    "failed": "warn",
}


@dataclass
class Seat:
    """One agent that takes tasks, while it runs."""

    run: str
    stage: Literal["starting", "ready", "error"] = "starting"
    why: str = ""
    is_draining: bool = False
    given: int = 0  # tasks that are just being taken
    log_level: Level = "info"
    began: float = field(default_factory=time.monotonic)
    journal: Journal = field(default_factory=lambda: Journal(log))
    checking: asyncio.Task[None] | None = None
    draining: asyncio.Task[None] | None = None
    following: asyncio.Task[None] | None = None

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Into its log, if that is not too quiet for it."""
        if LEVELS.index(level) >= LEVELS.index(self.log_level):
            self.journal.note(level, message, **fields)

    def fail(self, why: str) -> None:
        """It takes no tasks, for that reason."""
        self.stage, self.why = "error", why
        self.note("error", why)


class Seats:
    """All of them, by name."""

    def __init__(self, supervisor: Supervisor, tasks: Tasks) -> None:
        self._supervisor = supervisor
        self._tasks = tasks
        self._home = supervisor.home
        is_announced = supervisor.settings.discovery.method == "mdns"
        self.ports = Ports(self._announce if is_announced else None)
        self._seats: dict[str, Seat] = {}
        self._configuring = asyncio.Lock()
        supervisor.starter.seating = self
        tasks.may_take = self.is_ready

    # ── what the supervisor asks ──

    async def open(self, agent: Agent) -> None:
        """The agent is started, or was found again."""
        seat = self._seats[agent.name] = Seat(agent.run)
        worker = await asyncio.to_thread(run_plan.load_worker, self._home, agent)
        seat.log_level = worker.file.log_level
        if worker.file.port is not None:
            await self.ports.open(agent.name, worker.file.port)
        seat.note("info", "started", port=worker.file.port)
        seat.checking = asyncio.create_task(self._check(agent, seat), name=f"seat of {agent.name}")
        seat.following = asyncio.create_task(self._follow(agent.name, seat))

    async def reopen(self, agent: Agent) -> None:
        """The same for one that an earlier hub started: what is wrong now does not end it."""
        try:
            await self.open(agent)
        except BullpenError as error:
            self._seats[agent.name].fail(_words(error))
        # No new tasks from the beginning; the rest is `resume`'s, when tasks are known again.
        told = await self._told_to_leave(agent)
        self._seats[agent.name].is_draining = told is not None

    async def close(self, name: str, grace: float) -> None:
        """The agent is being stopped: no more tasks, and the one it has is cancelled."""
        seat = self._seats.get(name)
        if seat is not None:
            seat.is_draining = True
            await self._none_given(seat)
        with contextlib.suppress(BullpenError):  # it came to its end in this moment
            await self._tasks.end_all(name, grace)
        async with asyncio.timeout(grace + FREE_SECONDS):
            await self._free(name)
        self._leave(name)

    def take_back(self, name: str) -> None:
        """Its start has failed."""
        self._leave(name)

    def is_waited_for(self, name: str) -> bool:
        """Whether a task waits that goes on with one of its conversations."""
        tasks = list(self._tasks.board.live.values())  # also asked by threads
        return any(live.session.agent == name for live in tasks)

    def is_leaving(self, name: str) -> bool:
        """Whether it was told to leave, and is still there."""
        seat = self._seats.get(name)
        return seat is not None and seat.is_draining

    async def _announce(self, name: str, port: int) -> None:
        await mdns.announce(
            PublicStatus(
                type="agent",
                interfaces=INTERFACES,
                name=name,
                version=__version__,
                state="starting",
                uptime_seconds=0,
                home_id=self._home.id,
            ),
            port,
        )

    def _leave(self, name: str) -> None:
        self.ports.close(name)
        seat = self._seats.pop(name, None)
        works = (seat.checking, seat.draining, seat.following) if seat is not None else ()
        for work in works:
            if work is not None and work is not asyncio.current_task():
                work.cancel()

    # ── stages ──

    async def _check(self, agent: Agent, seat: Seat) -> None:
        """Its engine is there, and new enough; tasks wait for that."""

        def look() -> str:
            settled = sessions.load_settled(self._home, agent.name)
            role = run_plan.load_worker(self._home, agent).role
            return find_version(agent.engine, {**settled.env, **role.env})

        try:
            found = await in_loose_thread(look)
        except BullpenError as error:
            seat.fail(_words(error))
        except OSError as error:  # a program of another machine's, say
            seat.fail(f"{agent.engine} cannot be started: {error.strerror}")
        except Exception as error:  # top of a task: else it would be starting for ever
            log.exception("an engine cannot be looked at")
            seat.fail(f"a bug: {type(error).__name__}: {error}")
        else:
            seat.stage = "ready"
            seat.note("info", "takes tasks", engine=f"{agent.engine} {found}")
            self._tasks.dispatch()

    def is_ready(self, name: str) -> bool:
        """Whether it takes a task now, if it has none."""
        seat = self._seats.get(name)
        return seat is not None and seat.stage == "ready" and not seat.is_draining

    @contextlib.contextmanager
    def giving(self, name: str) -> Iterator[None]:
        """While a task is given to it: raises if it takes none, and it does not leave before the
        task is known."""
        self._refuse(name)
        seat = self._seats.get(name)
        if seat is None:  # whoever gives the task finds out that it is not there
            yield
            return
        seat.given += 1
        try:
            yield
        finally:
            seat.given -= 1
            self._tasks.board.wake()

    async def _none_given(self, seat: Seat) -> None:
        while seat.given:
            await self._tasks.board.next_news(LOOK_SECONDS)

    def _refuse(self, name: str) -> None:
        """Raise if it takes no tasks, and say whether it will."""
        seat = self._seats.get(name)
        if seat is None:
            live = self._supervisor.registry.find(name)
            is_coming = live is not None and live.is_running and live.agent.kind == "headless"
        else:
            is_coming = seat.stage == "starting" and not seat.is_draining
        if is_coming:
            raise BullpenError(
                f"{name} is starting",
                hint="ask again in a moment",
                kind=Kind.UNAVAILABLE,
                details={"error": "starting"},
            )
        if seat is None or self.is_ready(name):
            return
        message = f"{name} cannot work: {seat.why}"
        hint = f"mend it, then bullpen agent stop {name} and start it again"
        if seat.is_draining:
            message, hint = f"{name} is about to leave", f"then bullpen agent start {name}"
        raise BullpenError(message, hint=hint, kind=Kind.UNAVAILABLE, details={"retryable": False})

    # ── what the API asks ──

    async def status(self, name: str, home_id: str) -> Status:
        """The agent as a component."""
        live = self._supervisor.registry.get(name)
        worker = await asyncio.to_thread(run_plan.load_worker_or_plain, self._home, live.agent)
        seat, task = self._seat(name), self._tasks.current(name)
        # Its file may say others by now: those hold from the next start on.
        in_force = {"port": self.ports.number(name), "role": live.agent.role}
        return Status(
            type="agent",
            interfaces=INTERFACES,
            name=name,
            version=__version__,
            state=_phase(seat, task),
            uptime_seconds=round(time.monotonic() - seat.began, 3),
            home_id=home_id,
            pid=os.getpid(),
            current_task=_current(task),
            config=seat_files.shown_config(worker.file) | in_force,
            sandbox=worker.role.sandbox.model_dump(mode="json") if worker.is_sandboxed else None,
            log=seat.journal.entries(),
        )

    def _seat(self, name: str) -> Seat:
        seat = self._seats.get(name)
        if seat is None:
            raise BullpenError(
                f"{name} is not running", hint=f"bullpen agent start {name}", kind=Kind.CONFLICT
            )
        return seat

    async def _follow(self, name: str, seat: Seat) -> None:
        """The moves of its tasks, for its log; of quick ones perhaps not all, but each end."""
        board, last = self._tasks.board, None
        while True:
            task = self._tasks.current(name)
            if last is not None and not last.is_over and (task is None or task.id != last.id):
                with contextlib.suppress(BullpenError):  # no longer kept
                    last = await board.get(last.id)
                    _note_task(seat, last)
                last = None
                continue
            if task is not None and (last is None or task.state != last.state):
                _note_task(seat, task)
            last = task
            await board.next_news(FOLLOW_SECONDS)

    # ── leaving ──

    async def shut_down(self, name: str, seconds: float, *, force: bool) -> None:
        """Let what runs come to its end, within that time; then the agent is stopped. What still
        runs then is cancelled with `force`, and else goes on before the agent leaves. On disk when
        this returns: a hub that comes after a crash goes on with it."""
        seat = self._seat(name)
        was_draining, seat.is_draining = seat.is_draining, True
        until = time.time() + seconds
        data = {"run": seat.run, "until": until, "force": force}
        try:
            await self._supervisor.store.append(Draft(time.time(), "agent.stopping", name, data))
        except BullpenError:
            seat.is_draining = was_draining
            raise
        seat.note("info", "told to leave", drain_seconds=seconds, force=force)
        self._begin_to_leave(name, seat, until, force)

    def _begin_to_leave(self, name: str, seat: Seat, until: float, force: bool) -> None:
        for earlier in filter(None, (seat.checking, seat.draining)):
            earlier.cancel()
        work = self._drain(name, seat, until, force)
        seat.draining = asyncio.create_task(_logged(work, seat), name=f"drain {name}")

    async def _drain(self, name: str, seat: Seat, until: float, force: bool) -> None:
        await self._none_given(seat)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.time())):
                await self._free(name)
        board = self._tasks.board
        while (task := self._tasks.current(name)) is not None:
            if task.is_over:
                await board.next_news(LOOK_SECONDS)  # what it held is just being freed
            elif isinstance(task.status, Resting):
                try:
                    await self._tasks.end(task.id)
                except BullpenError:  # continued or ended in this moment, or the disk is full
                    await board.next_news(LOOK_SECONDS)
            elif force:
                break
            else:
                self.ports.close(name)  # it has left, but for its task
                await board.wait(task.id, _rests)
        await self._supervisor.stop(name, None)

    async def _free(self, name: str) -> None:
        """Until it has no task."""
        while self._tasks.current(name) is not None:
            await self._tasks.board.next_news(LOOK_SECONDS)

    async def _told_to_leave(self, agent: Agent) -> tuple[float, bool] | None:
        """Until when an earlier hub let it go on, and whether that is the end of its task, too."""
        last = self._supervisor.store.last_of
        told = await asyncio.to_thread(last, agent.name, "agent.stopping")
        if told is None or told.data.get("run") != agent.run:
            return None
        # Without a time it was stopped at once, and its task with it.
        return float(told.data.get("until", 0.0)), bool(told.data.get("force", True))

    async def resume(self) -> None:
        """Those that earlier hubs told to leave do so."""
        for name, seat in list(self._seats.items()):
            if seat.is_draining and seat.draining is None:
                agent = self._supervisor.registry.get(name).agent
                told = await self._told_to_leave(agent)
                if told is not None:
                    self._begin_to_leave(name, seat, *told)

    # ── files ──

    def load_file(self, name: str) -> tuple[AgentFile, bool]:
        """What the agent's file says, and whether it has one. Reads the disk."""
        return seat_files.load(self._home, self._supervisor.registry.get(name).agent)

    async def configure(self, name: str, fields: Mapping[str, Any]) -> seat_files.Configured:
        """Another file in place of the agent's. Checked before anything is written."""
        async with self._configuring:
            agent = self._supervisor.registry.get(name).agent
            done = await asyncio.to_thread(seat_files.rewrite, self._home, agent, fields)
        seat = self._seats.get(name)
        if seat is not None:
            seat.log_level = done.file.log_level
            seat.note("info", "configured", live=list(done.live), restart=list(done.restart))
        return done

    async def start_all(self, journal: Journal) -> None:
        """Those whose file says that they start with the hub; who cannot is in the hub's journal.
        Before, those leave that were told to."""
        await self.resume()
        for name in await asyncio.to_thread(list_agent_files, self._home):
            live = self._supervisor.registry.find(name)
            if live is not None and live.is_running:
                continue
            try:
                file = await asyncio.to_thread(load_agent_file, self._home, name)
                if file.autostart:
                    asked = Launch(kind="headless", name=name, cwd="/", env=dict(os.environ))
                    await self._supervisor.launch(asked)
            except BullpenError as error:
                journal.note("error", "cannot start an agent", agent=name, why=error.message)


async def _logged(work: Coroutine[Any, Any, None], seat: Seat) -> None:
    """Top of a task: who is still there says why."""
    try:
        await work
    except Exception as error:
        log.exception("an agent cannot leave")
        why = error.message if isinstance(error, BullpenError) else type(error).__name__
        seat.note("error", f"cannot leave: {why}")


def find_version(engine: str, env: Mapping[str, str]) -> str:
    """Of the engine's program; raises if there is none that serves. Blocks."""
    needed = PROGRAMS.get(engine)
    if needed is None:  # whatever program the role names
        return ""
    program = find_program(env, needed.variable, needed.program, needed.package)
    done = proc.run([program, "--version"], env=dict(env), timeout=VERSION_SECONDS)
    version = parse_version(done.text)
    if done.code or version is None:
        raise BullpenError(
            f"{program} --version failed: {done.error_text.strip()[:200]}",
            hint=needed.install,
            kind=Kind.UNAVAILABLE,
        )
    if not is_enough(version, needed.oldest):
        raise BullpenError(
            f"{engine} {written(version)} is too old, {written(needed.oldest)} is needed",
            hint=needed.install,
            kind=Kind.UNAVAILABLE,
        )
    return written(version)


def _words(error: BullpenError) -> str:
    return f"{error.message} · {error.hint}" if error.hint else error.message


def _note_task(seat: Seat, task: Task) -> None:
    fields = {"task": task.id}
    if isinstance(task.status, Failed):
        fields["type"] = task.status.error.type
    seat.note(TASK_LEVELS.get(task.state, "info"), f"a task is {task.state}", **fields)


def _rests(task: Task) -> bool:
    return isinstance(task.status, Resting)


def _phase(seat: Seat, task: Task | None) -> Phase:
    if seat.is_draining:
        return "draining"
    if seat.stage == "error":
        return "error"
    if seat.stage == "starting":
        return "starting"
    return "working" if task is not None else "idle"


def _current(task: Task | None) -> CurrentTask | None:
    if task is None:
        return None
    started = task.started or task.created
    return CurrentTask(id=task.id, started_at=started, prompt_preview=task.preview)

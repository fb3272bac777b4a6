"""Takes one task to its end, from whatever state it is in.

Every move is on disk before anything follows from it, so a driver can be begun anew at any time:
that is all that a restart of the hub does to a task. What a task may do is `model/task.py`'s, where
it works `workspaces`', how a run is made `run_plan`'s and how it is followed `runs`'.
"""

import asyncio
import contextlib
import functools
import logging
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bullpen.engines import get_engine
from bullpen.engines.lines import cost_of_run
from bullpen.errors import BullpenError
from bullpen.hub import held, run_plan, runs, sessions, walls, workspaces
from bullpen.hub.budgets import Budgets
from bullpen.hub.messages import Messages
from bullpen.hub.run_plan import Worker
from bullpen.hub.supervise import Supervisor
from bullpen.hub.task_board import Board, LiveTask
from bullpen.hub.task_rows import Session
from bullpen.hub.threads import in_loose_thread
from bullpen.model.agent import Agent
from bullpen.model.message import Message, envelope
from bullpen.model.state import Idle, Told
from bullpen.model.state import Working as AgentWorks
from bullpen.model.task import Cancelled, Cancelling, Completed, Queued, Resting, Run, Task, Working
from bullpen.model.task_moves import after_run, begin, fail, move, seconds_left, verdict
from bullpen.worktrees.since import head_of, since, snapshot

log = logging.getLogger("bullpen.hub")

GRACE_SECONDS = 10.0
LOOK_SECONDS = 5.0  # budgets are used up also while a run says nothing
LEAST_SECONDS = 0.01
TASK_CHANNEL = "task"
SANDBOX_WORDS = "bwrap: "
DIFF, OBJECTS = "diff.patch", "objects"


class Driver:
    """Everything that tasks need on their way, wired by `tasks`."""

    def __init__(
        self, supervisor: Supervisor, board: Board, messages: Messages, budgets: Budgets
    ) -> None:
        self._supervisor = supervisor
        self._board = board
        self._messages = messages
        self._budgets = budgets
        self._home = supervisor.home
        self._workspaces = workspaces.Workspaces(supervisor.home.root)

    async def to_the_end(self, live: LiveTask) -> None:
        if live.task.is_over or not await self._make_place(live):
            return
        directory = Path(live.session.directory)
        async with self._held(live, directory):
            if live.task.is_over:
                return
            place = (self._home, self._supervisor.settings, live.session)
            await asyncio.to_thread(workspaces.lock_tree, *place)
            try:
                await self._move_on(live)
            except Exception:
                await self._abandon(live)
                await asyncio.to_thread(workspaces.unlock_tree, *place)
                raise
            # While nobody else may work there: the lock of who comes next stays.
            await asyncio.to_thread(workspaces.unlock_tree, *place)

    async def _move_on(self, live: LiveTask) -> None:
        while not live.task.is_over:
            live.moved.clear()
            match live.task.status:
                case Queued():
                    await self._begin(live)
                case Working() | Cancelling():
                    await self._run(live)
                case Resting():
                    await self._rest(live)
                case _:
                    break

    async def _abandon(self, live: LiveTask) -> None:
        """Its driver has failed: what runs may not go on without one, and nobody else may work
        there before it has ended."""
        if live.place is not None and await asyncio.to_thread(held.is_held, live.place.directory):
            await runs.end(live.place, GRACE_SECONDS)

    @contextlib.asynccontextmanager
    async def _held(self, live: LiveTask, directory: Path) -> AsyncIterator[None]:
        """The directory, for this task alone; not waited for once the task is over."""
        async with contextlib.AsyncExitStack() as stack:
            holding = asyncio.ensure_future(
                stack.enter_async_context(self._workspaces.hold(live.task.id, directory))
            )
            while not holding.done() and not live.task.is_over:
                live.moved.clear()
                moved = asyncio.ensure_future(live.moved.wait())
                await asyncio.wait({holding, moved}, return_when=asyncio.FIRST_COMPLETED)
                moved.cancel()
            if not holding.done():
                holding.cancel()
                await asyncio.wait({holding})
            else:
                holding.result()
            yield

    async def _make_place(self, live: LiveTask) -> bool:
        """Have its directory; a task whose directory cannot be made has failed."""
        if live.session.directory and not isinstance(live.task.status, Queued):
            return True
        ground = self._supervisor.ground
        try:
            agent = self._agent(live)
            worker = await asyncio.to_thread(run_plan.load_worker, self._home, agent)
            site = workspaces.Site(self._home, ground.settings, ground.person, worker.session_dir)
            session = await self._made(live, site)
        except (BullpenError, OSError) as error:
            await self._board.fail(live, "setup_failed", _words(error))
            return False
        if session.git_dir and not live.session.directory:
            earlier = await self._board.rows.sessions_over(Path(session.directory))
            session = workspaces.believe(session, [*earlier, *self._terminals_over(session)])
        await self._board.keep_session(live, session)
        return True

    def _terminals_over(self, session: Session) -> list[Session]:
        """Sandboxed agents in terminals that may have made its git directory."""
        agents = (each.agent for each in self._supervisor.registry)
        return [
            Session(id="", directory=agent.cwd)
            for agent in agents
            if agent.kind == "interactive"
            and agent.is_sandboxed
            and Path(session.git_dir).is_relative_to(agent.cwd)
        ]

    async def _made(self, live: LiveTask, site: workspaces.Site) -> Session:
        """A clone takes as long as its server likes: the hub's other threads do not wait for it,
        and it ends with the task or the hub."""
        is_leaving = threading.Event()

        def is_wanted() -> bool:
            return not (live.task.is_over or is_leaving.is_set())

        making = asyncio.ensure_future(
            in_loose_thread(lambda: workspaces.make(site, live.task.wish, live.session, is_wanted))
        )
        # Whoever leaves does not look at how it ended; that is no error to be logged.
        making.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._supervisor.beside.finish(making)
        try:
            return await asyncio.shield(making)
        finally:
            is_leaving.set()

    async def _begin(self, live: LiveTask) -> None:
        base, before = await asyncio.to_thread(self._look_before, live)
        async with live.lock:
            if isinstance(live.task.status, Queued):
                begun = begin(live.task, time.time())
                where = {"directory": live.session.directory, "base": base, "before": before}
                await self._board.put_surely(live, begun.model_copy(update=where))

    def _look_before(self, live: LiveTask) -> tuple[str, str]:
        """What a checkout is at: its commit, and the tree of what is not committed."""
        base, looked = "", workspaces.checkout_of(live.session)
        if looked is None:
            return "", ""
        try:
            base = head_of(looked)
            return base, snapshot(looked, self._objects(live)) if base else ""
        except (BullpenError, OSError) as error:
            log.warning(
                "cannot tell what is there", extra={"task": live.task.id, "why": str(error)}
            )
            return base, ""

    async def _rest(self, live: LiveTask) -> None:
        """Until somebody continues, ends or cancels it, or for too long."""
        status = live.task.status
        assert isinstance(status, Resting)
        worker = await self._worker(live)  # it may be continued meanwhile: `moved` is set then
        left = status.since + worker.file.open_timeout.total_seconds() - time.time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await live.moved.wait()
        except TimeoutError:
            async with live.lock:
                if isinstance(live.task.status, Resting):
                    await self._board.put_surely(live, move(live.task, Completed(), time.time()))

    # ── one run ──

    async def _run(self, live: LiveTask) -> None:
        status = live.task.status
        assert isinstance(status, Working | Cancelling)
        number = status.run
        place = self._place(live.task, number)
        if not await asyncio.to_thread(place.began):
            if isinstance(status, Cancelling):
                async with live.lock:
                    await self._board.put_surely(live, move(live.task, Cancelled(), time.time()))
                return
            if not await self._wait_due(live, status) or not await self._start(live, place, number):
                return
        live.told, live.place, live.stopped_for = runs.Told(), place, None
        await self.say(live, AgentWorks(tool="", doing=""))
        watching = asyncio.create_task(self._watch(live, place), name=f"watch {place.tag}")
        try:
            engine = get_engine(self._agent(live).engine)
            ended = await runs.follow(place, engine, live.told, live.tell)
        finally:
            watching.cancel()
        await self._finish(live, number, ended)

    async def _wait_due(self, live: LiveTask, status: Working) -> bool:
        """Before another attempt; whether it is still wanted. The time of its turn goes on."""
        limit = await self._timeout(live)
        left = min(status.due - time.time(), seconds_left(live.task, limit, time.time()))
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await live.moved.wait()
        if live.task.status != status:
            return False
        why = verdict(live.task, limit, time.time())
        if why is not None:
            await self._board.fail(live, *why)
        return why is None

    async def _start(self, live: LiveTask, place: runs.Place, number: int) -> bool:
        """Start the run; a task whose run cannot be started has failed."""
        refusal = self._budgets.refusal(live.task.agent)
        if refusal:
            await self._board.fail(live, "budget", refusal)
            return False
        messages: list[Message] = []
        try:
            agent = self._agent(live)
            settled = await asyncio.to_thread(sessions.load_settled, self._home, agent.name)
            await asyncio.to_thread(workspaces.check_there, live.session)
            planned = functools.partial(
                run_plan.plan_run,
                self._supervisor.ground,
                agent,
                settled,
                live.task,
                live.session,
                number,
            )
            plan = await asyncio.to_thread(planned)
            messages = await self._messages_for(agent, plan)
            if messages:
                plan = await asyncio.to_thread(planned, [envelope(each) for each in messages])
            request = await asyncio.to_thread(run_plan.write, self._home, plan)
            await self._messages.mark_sent(messages, TASK_CHANNEL)
            conversed = _conversing(live.session, plan.prepared.conversation)
            await self._board.keep_session(live, conversed)
            await self._supervisor.lead(
                self._supervisor.registry.get(agent.name), walls.tunnel_hosts(plan.wall)
            )
            if isinstance(live.task.status, Cancelling):
                return False  # nothing has begun
            await runs.start(self._supervisor.factory, request, place)
        except walls.SandboxError as error:
            await self._board.fail(live, "sandbox_error", _words(error))
            return False
        except (BullpenError, OSError) as error:
            await self._board.fail(live, "setup_failed", _words(error))
            return False
        return True

    async def _messages_for(self, agent: Agent, plan: run_plan.RunPlan) -> list[Message]:
        """What waits for the agent. What an earlier prompt held and no event showed is looked for
        in the transcripts: while the hub was away nobody was told."""
        queue = self._messages.queue(agent.name)
        sent = [message for message in queue if message.sent is not None]
        if sent:
            told = agent.model_copy(update={"state_files": plan.prepared.state_files})
            ids = {message.id for message in sent}
            since = min(message.sent or 0.0 for message in sent)
            shown = await asyncio.to_thread(plan.engine.find_shown, told, ids, since)
            await self._messages.mark_delivered([each for each in sent if each.id in shown])
            await self._messages.mark_queued([each for each in sent if each.id not in shown])
        return self._messages.queue(agent.name)

    async def _watch(self, live: LiveTask, place: runs.Place) -> None:
        """End the run when it is cancelled, takes too long, or uses too much. One that does not
        take notice is told again, until this is cancelled. What fails here is tried again: else
        the run would go on without limits."""
        ahead = time.time() - time.monotonic()
        while True:
            pause = GRACE_SECONDS
            try:
                await self._wait_for_limit(live, ahead)
                await runs.stop(place, GRACE_SECONDS)
            except (BullpenError, OSError) as error:
                log.error("cannot end a run yet", extra={"tag": place.tag, "why": str(error)})
                pause = LOOK_SECONDS
            await asyncio.sleep(pause)

    async def _wait_for_limit(self, live: LiveTask, ahead: float) -> None:
        limit = await self._timeout(live)

        def now() -> float:
            """A clock that is set meanwhile ends no run, and spares none."""
            return time.monotonic() + ahead

        while not self._has_to_end(live, limit, now()):
            live.moved.clear()
            left = max(LEAST_SECONDS, seconds_left(live.task, limit, now()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await live.moved.wait()

    def _has_to_end(self, live: LiveTask, limit: float, now: float) -> bool:
        if isinstance(live.task.status, Cancelling):
            return True
        told = live.told or runs.Told()
        used = told.input_tokens + told.output_tokens
        refusal = self._budgets.refusal(live.task.agent)
        live.stopped_for = verdict(live.task, limit, now, used) or (
            ("budget", refusal) if refusal else None
        )
        return live.stopped_for is not None

    async def _timeout(self, live: LiveTask) -> float:
        if live.task.wish.timeout_seconds:
            return live.task.wish.timeout_seconds
        return (await self._worker(live)).file.claude.timeout.total_seconds()

    async def _finish(self, live: LiveTask, number: int, ended: runs.Ended) -> None:
        """What the run leads to, in one transaction with what it told."""
        told = live.told
        assert told is not None
        worker = await self._worker(live)
        session = _conversing(live.session, told.conversation)
        run = _record(live, number, ended, session.usd, is_sandboxed=worker.is_sandboxed)
        usd = max(session.usd, ended.outcome.conversation_usd)
        session = session.model_copy(update={"usd": usd})
        if live.stopped_for is None and run.fault:
            # The hub that stopped it may have been killed since.
            limit = await self._timeout(live)
            live.stopped_for = verdict(live.task, limit, ended.at, _tokens(run))
        await asyncio.to_thread(walls.tidy, workspaces.checkout_of(live.session))
        commits = await asyncio.to_thread(self._keep_changes, live)
        async with live.lock:
            task = self._after(live, run, told.text, worker)
            warnings = tuple(dict.fromkeys((*task.warnings, *told.warnings)))
            task = task.model_copy(update={"commits": commits, "warnings": warnings})
            await self._board.put_surely(live, task, session)
        live.told = None
        if not task.is_over:
            await self.say(live, Idle())

    def _after(self, live: LiveTask, run: Run, text: str, worker: Worker) -> Task:
        task, why = live.task, live.stopped_for
        if why is not None and isinstance(task.status, Working) and run.fault:
            kept = {"runs": (*task.runs, run), "output": text or task.output}
            return fail(task, why[0], why[1], run.ended, **kept)
        keep_open = task.wish.keep_open
        return after_run(
            task,
            run,
            text,
            stays_open=worker.file.keep_open if keep_open is None else keep_open,
            retries=worker.file.max_retries,
            chance=random.random(),
        )

    def _keep_changes(self, live: LiveTask) -> tuple[str, ...]:
        """What was done in a checkout, kept beside the task's logs."""
        looked = workspaces.checkout_of(live.session)
        if looked is None or not live.task.base:
            return live.task.commits
        try:
            found = since(looked, live.task.base, live.task.before, self._objects(live))
            place = run_plan.task_directory(self._home, live.task.agent, live.task.id)
            (place / DIFF).write_text(found.diff, encoding="utf-8", errors="backslashreplace")
        except (BullpenError, OSError) as error:
            log.warning("cannot tell what changed", extra={"task": live.task.id, "why": str(error)})
            return live.task.commits
        return found.commits

    # ── small things ──

    def _objects(self, live: LiveTask) -> Path:
        return run_plan.task_directory(self._home, live.task.agent, live.task.id) / OBJECTS

    def _agent(self, live: LiveTask) -> Agent:
        return self._supervisor.registry.get(live.task.agent).agent

    def _place(self, task: Task, number: int) -> runs.Place:
        return runs.Place(
            run_plan.run_directory(self._home, task, number),
            run_plan.tag_of(task, number),
            self._home.socket(task.agent),
        )

    async def _worker(self, live: LiveTask) -> Worker:
        live.worker = await asyncio.to_thread(
            run_plan.load_worker_or_plain, self._home, self._agent(live), live.worker
        )
        return live.worker

    async def say(self, live: LiveTask, state: AgentWorks | Idle) -> None:
        """The agent's own state, as `list` shows it."""
        agent = self._supervisor.registry.find(live.task.agent)
        if agent is not None and agent.is_running:
            says = f"{live.task.id} is {live.task.state}"
            seen = Told(at=time.time(), source="task", says=says, state=state)
            with contextlib.suppress(BullpenError):
                await self._supervisor.record.observe(agent, seen)


def _conversing(session: Session, conversation: str) -> Session:
    """What another conversation costs is counted from nothing."""
    if not conversation or conversation == session.conversation:
        return session
    return session.model_copy(update={"conversation": conversation, "usd": 0.0})


def _record(
    live: LiveTask, number: int, ended: runs.Ended, before_usd: float, *, is_sandboxed: bool
) -> Run:
    told, outcome = live.told, ended.outcome
    assert told is not None
    run = Run(
        number=number,
        began=_began(live),
        ended=ended.at,
        exit_code=ended.code,
        signal=ended.signal,
        fault=outcome.fault,
        why=outcome.why,
        is_retryable=outcome.is_retryable,
        input_tokens=max(outcome.input_tokens, told.input_tokens),
        output_tokens=max(outcome.output_tokens, told.output_tokens),
        usd=cost_of_run(before_usd, outcome),
    )
    if ended.is_lost:
        return run.model_copy(update={"fault": "lost", "is_retryable": True})
    if is_sandboxed and told.outcome is None and outcome.why.startswith(SANDBOX_WORDS):
        return run.model_copy(update={"fault": "sandbox_error", "is_retryable": False})
    return run


def _began(live: LiveTask) -> float:
    status = live.task.status
    if isinstance(status, Working):
        return max(status.turn_started, status.due)
    return live.task.started or live.task.created


def _tokens(run: Run) -> int:
    return run.input_tokens + run.output_tokens


def _words(error: Exception) -> str:
    if isinstance(error, BullpenError):
        return f"{error.message} · {error.hint}" if error.hint else error.message
    if isinstance(error, OSError):
        return ": ".join(filter(None, (error.strerror or str(error), error.filename)))
    return str(error)

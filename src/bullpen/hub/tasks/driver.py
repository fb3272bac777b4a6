"""Takes one task to its end, from whatever state it is in.

Every move is on disk before anything follows from it, so a driver can be begun anew at any time:
that is all that a restart of the hub does to a task. `model/task_moves` decides which move may
follow, `workspaces` where a task works, `run_start` how a run is started, `run` how it is followed,
`run_watch` when it has to end.
"""

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bullpen.engines import get_engine
from bullpen.errors import BullpenError
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import Registry
from bullpen.hub.background import Background, in_daemon_thread
from bullpen.hub.context import HubContext
from bullpen.hub.holders import files as holder_files
from bullpen.hub.holders.factory import Factory
from bullpen.hub.messages.box import Messages
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan, task_changes, workspaces
from bullpen.hub.tasks.board import Board, LiveTask
from bullpen.hub.tasks.limits import TaskLimits
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.run_plan import Worker
from bullpen.hub.tasks.run_record import explain_end, record_run
from bullpen.hub.tasks.run_start import RunStarter, find_store, words_of
from bullpen.hub.tasks.run_watch import GRACE_SECONDS, RunWatch
from bullpen.hub.tasks.workers import Workers
from bullpen.hub.usage.budgets import Budgets
from bullpen.model.state import Blocked, EngineReport, Idle, Interrupted, Working
from bullpen.model.task import (
    Cancelled,
    Cancelling,
    Completed,
    Queued,
    Resting,
    Run,
    Task,
    TaskWorking,
)
from bullpen.model.task_moves import after_run, begin, fail, move, seconds_left, verdict

log = logging.getLogger("bullpen.hub")


class Driver:
    """Drives every task of one hub. Called by `queue`, once per task."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        observer: Observer,
        factory: Factory,
        tunnels: Tunnels,
        board: Board,
        messages: Messages,
        budgets: Budgets,
        approvals: Approvals,
        background: Background,
        private_gits: PrivateGits,
        limits: TaskLimits,
    ) -> None:
        self._context = context
        self._home = context.home
        self._trees = context.trees
        self._registry = registry
        self._observer = observer
        self._board = board
        self._approvals = approvals
        self._background = background
        self._private_gits = private_gits
        self._limits = limits
        self._workspaces = workspaces.Workspaces(context.home.root)
        self._workers = Workers(context.home, registry)
        self.run_watch = RunWatch(self._workers, budgets)
        self.run_starter = RunStarter(
            context,
            registry,
            factory,
            tunnels,
            board,
            messages,
            budgets,
            private_gits,
            self._workers,
        )

    async def to_the_end(self, live: LiveTask) -> None:
        """Drive the task until it is over, or back in the queue. The entry of this module:
        `queue._drive_safely` calls it, in an asyncio task of its own. What goes wrong in the hub is
        raised."""
        if live.task.is_over or not await self._make_directory(live):
            return
        directory = Path(live.session.directory)
        if self._workspaces.others(live.task.id, directory):
            live.worker = None  # it waits: its run is as the files say when it begins
        async with self._hold_directory(live, directory):
            if live.task.is_over:
                return
            worktree = (self._home, self._context.settings, live.session)
            unlock = partial(workspaces.unlock_tree, *worktree)
            await self._trees.run_to_end(partial(workspaces.lock_tree, *worktree))
            try:
                await self._move_on(live)
            except Exception:
                await self._abandon(live)
                await self._trees.run_to_end(unlock)
                raise
            # While nobody else may work there: the lock of who comes next stays.
            await self._trees.run_to_end(unlock)

    async def _move_on(self, live: LiveTask) -> None:
        if isinstance(live.task.status, Queued):
            await self._begin(live)
        while True:
            live.moved.clear()
            match live.task.status:
                case TaskWorking() | Cancelling():
                    await self._run(live)
                case Resting():
                    await self._rest(live)
                case _:
                    return

    async def _abandon(self, live: LiveTask) -> None:
        """Its driver has failed: what runs may not go on without one, and nobody else may work
        there before it has ended."""
        if live.run_ref is not None and await asyncio.to_thread(
            holder_files.is_held, live.run_ref.directory
        ):
            await task_run.end(live.run_ref, GRACE_SECONDS)

    @contextlib.asynccontextmanager
    async def _hold_directory(self, live: LiveTask, directory: Path) -> AsyncIterator[None]:
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

    async def _make_directory(self, live: LiveTask) -> bool:
        """Make the directory and session of a task; a task whose directory cannot be made has
        failed."""
        if live.session.directory and not isinstance(live.task.status, Queued):
            return True
        context = self._context
        try:
            worker = await self._workers.load(live)
            site = workspaces.TaskSite(
                self._home,
                context.settings,
                context.person,
                worker.session_dir,
                worker.role.worktree.ports,
                await self._find_written(live),
                live.task.giver,
                await self._find_earlier(live),
            )
            session = await self._make_session(live, site)
        except (BullpenError, OSError) as error:
            await self._board.fail(live, "setup_failed", words_of(error))
            return False
        if session.git_dir and not live.session.directory:
            earlier = await self._board.rows.sessions_over(Path(session.directory))
            earlier = workspaces.earlier_than(session, [*earlier, *self._terminals()])
            session = workspaces.believe(session, earlier)
        if session.worktree:
            live.worker = None  # a clone takes as long as its server likes
        await self._board.keep_session(live, session)
        return True

    async def _find_written(self, live: LiveTask) -> tuple[Path, ...]:
        """Where agents work, or worked, on the way to the directory that a task names."""
        wish, person = live.task.wish, self._context.person
        find = partial(workspaces.find_above, self._home, person, wish, live.session)
        above = () if live.session.directory else await asyncio.to_thread(find)
        if not above:
            return ()
        agents = [each.agent for each in self._registry if not each.agent.takes_tasks]
        inside = [agent.real_cwd or agent.cwd for agent in agents if agent.is_sandboxed]
        earlier = [each.directory for each in await self._board.rows.sessions_over(*above)]
        return tuple(Path(directory) for directory in (*earlier, *inside))

    async def _find_earlier(self, live: LiveTask) -> tuple[TaskSession, ...]:
        """Who may have made the git directory around what a task names that is to have a branch."""
        wish, person = live.task.wish, self._context.person
        if live.session.directory or not (wish.branch or live.session.named.branch):
            return ()
        find = partial(workspaces.find_named, self._home, person, wish, live.session)
        named = await asyncio.to_thread(find)
        if named is None:
            return ()
        real = Path(await asyncio.to_thread(os.path.realpath, named))
        return (*await self._board.rows.sessions_over(real), *self._terminals())

    def _terminals(self) -> tuple[TaskSession, ...]:
        agents = (each.agent for each in self._registry)
        return workspaces.of_terminals(
            agent.cwd for agent in agents if not agent.takes_tasks and agent.is_sandboxed
        )

    async def _make_session(self, live: LiveTask, site: workspaces.TaskSite) -> TaskSession:
        """A clone takes as long as its server likes: the hub's other threads do not wait for it,
        and it ends with the task or the hub."""
        is_leaving = threading.Event()

        def is_wanted() -> bool:
            return not (live.task.is_over or is_leaving.is_set())

        making = asyncio.ensure_future(
            in_daemon_thread(lambda: workspaces.make(site, live.task.wish, live.session, is_wanted))
        )
        # Whoever leaves does not look at how it ended; that is no error to be logged.
        making.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._background.finish(making)
        try:
            return await asyncio.shield(making)
        finally:
            is_leaving.set()

    async def _begin(self, live: LiveTask) -> None:
        # Commits of an earlier task that are still being brought over are not this one's.
        await self._private_gits.wait_finished(await find_store(live))
        where = {"directory": live.session.directory, "branch": live.session.branch}
        if not live.task.runs:  # else its own work is there already
            look = partial(task_changes.look_before, self._home, live)
            base, before = await self._trees.run_repeatable(live.task.agent, look)
            where |= {"base": base, "before": before}
        async with live.lock:
            if isinstance(live.task.status, Queued):
                begun = begin(live.task, time.time())
                await self._board.put_surely(live, begun.model_copy(update=where))

    async def _rest(self, live: LiveTask) -> None:
        """Until somebody continues, ends or cancels it, or for too long."""
        status = live.task.status
        assert isinstance(status, Resting)
        if self.is_killed(live):
            await self._cancel(live)
            return
        worker = await self._workers.get(live)  # it may be continued meanwhile: `moved` is set then
        left = status.since + worker.file.open_timeout.total_seconds() - time.time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await live.moved.wait()
        except TimeoutError:
            async with live.lock:
                if isinstance(live.task.status, Resting):
                    await self._board.put_surely(live, move(live.task, Completed(), time.time()))

    def is_killed(self, live: LiveTask) -> bool:
        """Whether its agent was, with everything of the home: nothing of it is started again."""
        agent = self._registry.find(live.task.agent)
        return agent is not None and agent.view.state == Interrupted(reason="killed")

    async def _cancel(self, live: LiveTask) -> None:
        """It does not run: it is over at once."""
        cancelled = Cancelled(reason="killed" if self.is_killed(live) else "")
        async with live.lock:
            if not live.task.is_over:
                await self._board.put_surely(live, move(live.task, cancelled, time.time()))

    # ── one run ──

    async def _run(self, live: LiveTask) -> None:
        status = live.task.status
        assert isinstance(status, TaskWorking | Cancelling)
        number = status.run
        run_ref = self._run_ref(live.task, number)
        if not await asyncio.to_thread(run_ref.began):
            if self.is_killed(live) or isinstance(status, Cancelling):
                await self._cancel(live)
                return
            is_due = await self._wait_due(live, status)
            if not is_due or not await self.run_starter.start(live, run_ref, number):
                return
        live.run_output, live.run_ref, live.stopped_for = task_run.RunOutput(), run_ref, None
        self._private_gits.follow(self._registry.get(live.task.agent), await find_store(live))
        await self._say_works(live)
        watching = asyncio.create_task(
            self.run_watch.watch(live, run_ref), name=f"watch {run_ref.tag}"
        )
        try:
            engine = get_engine(self._workers.agent(live).engine)
            ended = await task_run.follow(run_ref, engine, live.run_output, live.tell)
        finally:
            watching.cancel()
        await self._finish(live, number, ended)

    async def _wait_due(self, live: LiveTask, status: TaskWorking) -> bool:
        """Before another attempt; whether it is still wanted. The time of its turn goes on."""
        limit = await self._workers.turn_seconds(live)
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

    async def _finish(self, live: LiveTask, number: int, ended: task_run.Ended) -> None:
        """What the run leads to, in one transaction with what it told."""
        run_output = live.run_output
        assert run_output is not None
        worker = await self._workers.get(live)
        session = live.session.in_conversation(run_output.conversation)
        run = record_run(live, number, ended, session.usd, worker)
        usd = max(session.usd, ended.outcome.conversation_usd)
        session = session.model_copy(update={"usd": usd})
        if live.stopped_for is None and run.fault:
            # The hub that stopped it may have been killed since.
            limit = await self._workers.turn_seconds(live)
            live.stopped_for = verdict(
                live.task, limit, ended.at, run.input_tokens + run.output_tokens
            )
        agent = self._registry.get(live.task.agent)
        await self._private_gits.finish_store(agent, await find_store(live))
        look_after = partial(self._look_after, live)
        news, commits = await self._trees.run_repeatable(live.task.agent, look_after)
        self._private_gits.tell(agent, news)
        until = None
        if run.fault == "rate_limit":
            until = await self._limits.met(agent, live.task, run.why)
        async with live.lock:
            run = explain_end(run, live.task.status, live.stopped_for)
            task = self._after(live, run, run_output.text, worker, until)
            warnings = tuple(dict.fromkeys((*task.warnings, *run_output.warnings)))
            task = task.model_copy(update={**commits, "warnings": warnings})
            await self._board.put_surely(live, task, session)
        live.run_output = None
        if not task.is_over:
            await self.say(live, Idle())

    def _after(
        self, live: LiveTask, run: Run, text: str, worker: Worker, limited_until: float | None
    ) -> Task:
        task, why = live.task, live.stopped_for
        if why is not None and isinstance(task.status, TaskWorking) and run.fault:
            fields = {"runs": (*task.runs, run), "output": text or task.output}
            return fail(task, why[0], why[1], run.ended, **fields)
        keep_open = task.wish.keep_open
        return after_run(
            task,
            run,
            text,
            stays_open=worker.file.keep_open if keep_open is None else keep_open,
            retries=worker.file.max_retries,
            chance=random.random(),
            limited_until=limited_until,
        )

    def _look_after(self, live: LiveTask) -> tuple[list[str], dict[str, object]]:
        news = sandbox_policy.tidy(workspaces.checkout_of(live.session))
        return news, task_changes.keep_changes(self._home, live)

    # ── helpers: paths, state ──

    def _run_ref(self, task: Task, number: int) -> task_run.RunRef:
        return task_run.RunRef(
            run_plan.run_directory(self._home, task, number),
            run_plan.tag_of(task, number),
            self._home.socket(task.agent),
        )

    async def _say_works(self, live: LiveTask) -> None:
        """A run that an earlier hub began may wait for a permission."""
        agent = self._registry.find(live.task.agent)
        blocked = self._approvals.blocked_on(agent) if agent is not None else None
        await self.say(live, blocked or Working(tool="", doing=""))

    async def say(self, live: LiveTask, state: Working | Blocked | Idle) -> None:
        """The agent's own state, as `list` shows it."""
        agent = self._registry.find(live.task.agent)
        if agent is not None and agent.is_running:
            if isinstance(state, Idle):
                state = Idle(limited_until=self._limits.parked_until(agent))
            says = f"{live.task.id} is {live.task.state}"
            seen = EngineReport(at=time.time(), source="task", says=says, state=state)
            with contextlib.suppress(BullpenError):
                await self._observer.observe(agent, seen)

"""What tasks that are over leave: rows past the limit, logs, variables, directories, clones, locks.

Called by `queue`, after each task and when a hub begins. Never touches what a task that is not over
uses, and no directory with files in it that are nowhere else.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from bullpen.hub.agents.registry import Registry
from bullpen.hub.context import HubContext
from bullpen.hub.tasks import run_plan, workspaces
from bullpen.hub.tasks.rows import TaskRows, TaskSession
from bullpen.hub.tasks.run_plan import Worker
from bullpen.model.task import Task

log = logging.getLogger("bullpen.hub")


class Leftovers:
    """Of all task agents. `submitting` is held while a task is taken."""

    def __init__(
        self, context: HubContext, registry: Registry, rows: TaskRows, submitting: asyncio.Lock
    ) -> None:
        self._context = context
        self._home = context.home
        self._registry = registry
        self._rows = rows
        self._submitting = submitting

    async def remove_all(self, open_tasks: set[str]) -> None:
        """What a killed hub did not come to: variables, logs, directories and locks of tasks that
        are over, and clones."""
        await asyncio.to_thread(run_plan.remove_stale_variables, self._home, open_tasks)
        await asyncio.to_thread(workspaces.remove_stale_clones, self._home)
        for each in self._registry:
            if each.agent.takes_tasks:
                known = await self._rows.ids(each.agent.name)
                await asyncio.to_thread(
                    run_plan.remove_stale_tasks, self._home, each.agent.name, known
                )
                await self._clear_directories(each.agent.name)
        home, context = self._home, self._context
        for session in await self._rows.worktree_sessions():
            if session.git_dir and (Path(session.git_dir) / "locked").exists():
                # Who still works there locks it again.
                unlock = partial(workspaces.unlock_tree, home, context.settings, session)
                await context.trees.run_to_end(unlock)

    async def forget_old(self, agent: str, worker: Worker | None) -> None:
        """Keep no more tasks of that agent than its file or the settings say."""
        limit = self._context.settings.history_limit
        live = self._registry.find(agent)
        if worker is None and live is not None:  # the task was over before it began
            worker = await asyncio.to_thread(run_plan.find_worker, self._home, live.agent)
        if worker is not None:
            limit = worker.file.history_limit or limit
        dropped = await self._rows.drop_old(agent, limit)
        for id in dropped if agent else ():  # nobody's was never begun
            directory = run_plan.task_directory(self._home, agent, id)
            await asyncio.to_thread(shutil.rmtree, directory, True)
        if dropped:
            await self._clear_directories(agent)

    async def remove_empty(
        self, task: Task, session: TaskSession, open_tasks: Iterable[Task]
    ) -> None:
        """The worktree and the branch that a director's task had made, if nothing came to be on it:
        each goal that only asked something would leave a branch in the person's repository."""
        is_made = task.director and task.wish.branch and session.worktree
        is_base = any(one.giver and one.giver.branch == session.branch for one in open_tasks)
        if is_made and not is_base:
            home, context = self._home, self._context
            remove = partial(workspaces.remove_empty, home, context.settings, session)
            await context.trees.run_to_end(remove)

    async def _clear_directories(self, agent: str) -> None:
        """The directories of conversations go with their last task, but for those with files."""
        async with self._submitting:  # nobody goes on with one meanwhile
            sessions = await self._rows.forgotten_sessions(agent)
            kept = 0
            for session in filter(workspaces.is_scratch, sessions):
                if await asyncio.to_thread(workspaces.clear_scratch, session):
                    await self._rows.drop_session(session.id)
                else:
                    kept += 1
        if kept:
            about = {"agent": agent, "directories": kept}
            log.info("kept directories of forgotten tasks: there are files in them", extra=about)

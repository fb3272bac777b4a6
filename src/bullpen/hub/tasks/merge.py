"""An agent takes the work of a task that it gave: a landing in the branch that it works on itself.

Called by the MCP tools `delegate_task`, whose tasks begin at that branch, and `merge_task`.
Refuses a task that goes on or has left something uncommitted. Which branch a worktree is on is
read from its record, out of reach of agents in sandboxes; the record's id tells the worktree that
a task worked in from another of that name. `tasks/merged` removes worktrees whose work has landed.
"""

import asyncio
from functools import partial
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.context import HubContext
from bullpen.hub.landing.queue import Landings
from bullpen.hub.landing.steps import find_tips
from bullpen.hub.landing.subjects import Subject
from bullpen.hub.tasks.brought_over import list_missing
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.run_plan import Worker, load_worker
from bullpen.hub.tasks.run_start import find_store
from bullpen.model.landing import Landed, Landing, LandingRequest
from bullpen.model.landing_rules import Strategy
from bullpen.model.rights import Rights, rights_of
from bullpen.model.task import Task
from bullpen.worktrees import Record, Site

WAIT_SECONDS = 3600.0
MOST_NAMED = 100


class TaskMerger:
    """Merges the work of tasks into the branches of the agents that gave them."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        tasks: TaskQueue,
        private_gits: PrivateGits,
        landings: Landings,
    ) -> None:
        self._context = context
        self._registry = registry
        self._tasks = tasks
        self._private_gits = private_gits
        self._landings = landings

    async def find_branch(self, giver: LiveAgent) -> str:
        """The branch that it works on, with what it has committed there: that of its present task,
        else its own. Empty if it has none."""
        task = self._tasks.current(giver.agent.name)
        if task is None:
            await self._private_gits.bring_over(giver)
            return giver.agent.birth_branch if giver.agent.worktree else ""
        live = self._tasks.board.live[task.id]
        store = await find_store(live)
        if store is not None:
            await self._private_gits.bring_over_store(giver, store)
        record = await asyncio.to_thread(self._find_record, live.session)
        return record.branch if record else ""

    async def merge_task(
        self,
        giver: LiveAgent,
        task: Task,
        strategy: Strategy | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> Landing:
        """The entry of the queue when nothing more happens to it: `landed`, or `refused` with what
        does not fit or stands in the way. `task` is one that the giver gave."""
        into = await self.find_branch(giver)
        if not into:
            raise BullpenError(
                f"{giver.agent.name} works on no branch of its own that {task.id} could land in",
                hint="report which task did what: a person can land it",
                kind=Kind.CONFLICT,
            )
        session = await self._tasks.board.rows.find_session(task.session_id)
        self._refuse_unfinished(task, session)
        if session is None or not session.worktree:
            raise BullpenError(
                f"{task.id} has no branch that could land",
                hint="delegate_task with branch_name has a task work on one",
                kind=Kind.CONFLICT,
            )
        landed = await self._find_landed(giver, session, into)
        if landed is not None:
            return landed
        agent = self._registry.find(task.agent)
        missing = await list_missing(self._private_gits, agent, session)
        if missing is None:
            raise BullpenError(
                f"the commits of {task.id} are still being brought over", kind=Kind.UNAVAILABLE
            )
        if missing:
            raise BullpenError(
                f"not all that {task.id} has committed is in its repository: {'; '.join(missing)}",
                hint="a person has to look at that",
                kind=Kind.CONFLICT,
            )
        plan = partial(self._plan, giver, task, session, agent, into, strategy)
        entry = await self._context.trees.run(task.agent, plan)
        (landing,) = await self._landings.put_in([entry])
        return await self._landings.get(landing.id, wait_seconds)

    def _refuse_unfinished(self, task: Task, session: TaskSession | None) -> None:
        """Also while another task goes on, or is to, in the directory of that one."""
        directory = session.directory if session else ""
        left = [
            live.task
            for live in self._tasks.board.live.values()
            if not live.task.is_over
            and (live.task.id == task.id or (directory and live.session.directory == directory))
        ]
        if left:
            raise BullpenError(
                f"{left[0].id} is not over: {left[0].state}",
                hint="wait for its end (wait_for_event), and merge it then",
                kind=Kind.CONFLICT,
            )

    async def _find_landed(
        self, giver: LiveAgent, session: TaskSession, into: str
    ) -> Landing | None:
        """For who asks again: the last entry that landed, unless its branch has more by now."""
        mine = (session.worktree, _life_of(session), giver.agent.name, into)
        for landing in reversed(await self._landings.find(everything=True)):
            if (landing.name, landing.birth, landing.by, landing.target) == mine and isinstance(
                landing.status, Landed
            ):
                tip = await asyncio.to_thread(self._find_tip, session, landing.branch)
                return landing if tip in (None, landing.tip) else None
        return None

    # ── looking, in threads ──

    def _site(self, session: TaskSession) -> Site:
        """Of the worktree that it was given, wherever new ones are made now."""
        home, settings = self._context.home, self._context.settings
        return open_site(home, settings, Path(session.repo), Path(session.directory).parent)

    def _find_tip(self, session: TaskSession, branch: str) -> str | None:
        return find_tips(self._site(session), [branch]).get(branch)

    def _find_record(self, session: TaskSession) -> Record | None:
        """Of the very worktree that it worked in."""
        if not session.worktree:
            return None
        site = self._site(session)
        record = worktrees.find_record(site, session.worktree)
        if record is None or not record.is_of(site.repo):
            return None
        return record if is_of_task(record, session) else None

    def _plan(
        self,
        giver: LiveAgent,
        task: Task,
        session: TaskSession,
        agent: LiveAgent | None,
        into: str,
        strategy: Strategy | None,
    ) -> Landing:
        site, record = self._site(session), self._find_record(session)
        tip = find_tips(site, [record.branch]).get(record.branch) if record else None
        if record is None or tip is None:
            raise BullpenError(
                f"the worktree or the branch of {task.id} was removed, or is another's by now",
                hint="delegate_task gives what is missing anew",
                kind=Kind.CONFLICT,
            )
        has_worktree = worktrees.exists(site, record.name)
        changed = list(worktrees.uncommitted_files(site, record.name)) if has_worktree else []
        if changed:
            named = ", ".join(changed[:3]) + (", …" if len(changed) > 3 else "")
            raise BullpenError(
                f"{task.id} has left uncommitted files ({named})",
                hint=f"have them committed: delegate_task with continue_task {task.id}; then"
                " merge_task again, with the new task",
                kind=Kind.CONFLICT,
                details={"files": changed[:MOST_NAMED]},
            )
        worker = load_worker(self._context.home, agent.agent) if agent else None
        subject = Subject(
            name=record.name,
            site=site,
            branch=record.branch,
            tip=tip,
            base=record.target,
            birth=record.id,
            has_worktree=has_worktree,
            role=agent.agent.role if agent else "",
            pod=agent.agent.pod if agent else "",
            overrides=agent.agent.overrides if agent else (),
            ceiling=_rights(worker) if worker else None,
        )
        request = LandingRequest(names=(record.name,), into=into, strategy=strategy)
        entry = self._landings.check(subject, request)
        current = self._tasks.current(giver.agent.name)
        return entry.model_copy(
            update={
                "by": giver.agent.name,
                "task": task.id,
                "goal": current.id if current else "",
                "cleans_up": True,
                # Of who is gone nobody knows any more whether it had one.
                "network": worker is not None and worker.role.sandbox.allow_network,
            }
        )


def is_of_task(record: Record, session: TaskSession) -> bool:
    """Whether that is the very worktree, and no later one of its name."""
    return record.id == _life_of(session)


def _life_of(session: TaskSession) -> str:
    """Git's administrative directory is called as the record's id."""
    return Path(session.git_dir).name


def _rights(worker: Worker) -> Rights:
    """What its tasks had: worktrees of tasks get no untracked files."""
    tree = worker.role.worktree.model_copy(update={"copy_globs": ()})
    role = worker.role.model_copy(update={"worktree": tree})
    return rights_of(role, is_sandboxed=worker.is_sandboxed)

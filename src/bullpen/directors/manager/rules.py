"""The rules of a manager for the loop: gives goals to its agent as tasks, and looks at these.

Made by `director`. Decides nothing: `goals.plan` does.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bullpen.client import AsyncHub
from bullpen.client.tasks import get_requested_task, get_task, offer_task
from bullpen.directors.cancelling import cancel
from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.loop import request_key
from bullpen.directors.manager import goals as of_goals
from bullpen.directors.manager.config import ManagerConfig
from bullpen.directors.manager.goals import (
    CancelGoal,
    CloseGoal,
    GiveGoal,
    GoalAction,
    Goals,
    TaskSeen,
)
from bullpen.errors import BullpenError, Kind
from bullpen.model.task_shown import TaskShown

LOOK_SECONDS = 2.0  # while there are goals
IDLE_SECONDS = 300.0
DONE = "done"


class ManagerRules:
    """Rules of one manager."""

    memory_type = Goals
    action_type = GoalAction

    def __init__(
        self,
        name: str,
        hub: AsyncHub,
        find_config: Callable[[], ManagerConfig],
        now: Callable[[], float],
    ) -> None:
        self._name = name
        self._hub = hub
        self._find_config = find_config  # reads the disk
        self._now = now
        self.seen: Mapping[str, TaskSeen] = {}  # at the last look

    async def observe(self, memory: Goals) -> Mapping[str, TaskSeen]:
        ids = [goal.task_id for goal in memory.open.values() if goal.task_id]
        self.seen = {id: await self._look(id) for id in ids}
        return self.seen

    async def _look(self, id: str) -> TaskSeen:
        try:
            return _seen(await self._hub.do(get_task(id)))
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            lost = "the hub knows its task no more"
            return TaskSeen(state="failed", reason=lost, completed_at=self._now())

    def plan(self, snapshot: Mapping[str, TaskSeen], memory: Goals) -> Sequence[GoalAction]:
        return of_goals.plan(snapshot, memory)

    async def act(self, action: GoalAction) -> str:
        match action:
            case GiveGoal():
                return await self._give(action)
            case CancelGoal():
                await cancel(self._hub, action.task_id)
        return DONE

    async def _give(self, action: GiveGoal) -> str:
        config, request = await asyncio.to_thread(self._find_config), action.asked
        is_placed = request.workdir is not None or request.project is not None
        call = offer_task(
            request.prompt,
            agent=config.agent_of(self._name),
            workdir=request.workdir if is_placed else config.workdir,
            project=request.project if is_placed else config.project,
            branch=of_goals.branch_for(self._name, action.subject),
            model=request.model or config.model,
            timeout_seconds=config.timeout.total_seconds() if config.timeout else None,
            keep_open=False,
            sandboxed="required",
            request=request_key(self._name, action),
        )
        try:
            return (await self._hub.do(call)).task_id
        except BullpenError as error:
            # Its agent may be started at any time.
            if error.kind in (Kind.NOT_FOUND, Kind.CONFLICT):
                hint = f"bullpen director restart {self._name}"
                raise ActionError(error.message, Verdict.LATER, hint=hint) from error
            raise

    async def resume(self, action: GoalAction) -> str | None:
        if isinstance(action, GiveGoal):
            # Only asked for, never given again here: the goal may be cancelled. `plan` knows that.
            return await self._find_given(action)
        return await self.act(action)  # twice is once

    async def _find_given(self, action: GiveGoal) -> str | None:
        call = get_requested_task(request_key(self._name, action))
        try:
            return (await self._hub.do(call)).task_id
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return None

    def remember(self, memory: Goals, action: GoalAction, outcome: str) -> Goals:
        if isinstance(action, CloseGoal):
            return of_goals.without(memory, action.row)
        goal = memory.open[action.subject]
        changes = {"task_id": outcome} if isinstance(action, GiveGoal) else {"is_told": True}
        return of_goals.with_goal(memory, goal.model_copy(update=changes))

    def give_up(self, memory: Goals, action: GoalAction, reason: str) -> Goals:
        if isinstance(action, GiveGoal):
            goal = memory.open[action.subject]
            task = TaskSeen(state="failed", reason=reason, completed_at=self._now())
            return of_goals.without(memory, of_goals.row_of(goal, task))
        return memory

    def pause_seconds(self, memory: Goals) -> float:
        return LOOK_SECONDS if memory.open else IDLE_SECONDS


def _seen(task: TaskShown) -> TaskSeen:
    return TaskSeen(
        state=task.state,
        agent=task.agent or "",
        report=task.output or "",
        reason=task.error.message if task.error is not None else task.reason or "",
        cost_usd=task.cost_usd,
        completed_at=task.completed_at or 0.0,
        branch=task.branch or "",
        commit_count=task.commit_count,
    )

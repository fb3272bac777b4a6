"""The rules of a scheduler for the loop: what it sees, and how it acts on the hub.

Made by `director`. Decides nothing: `plan` does, and `ledger` says what comes of an action. The hub
may be away: what has become due is accounted for all the same, and given when it is back.
"""

from collections.abc import Callable, Mapping, Sequence

from bullpen.client import AsyncHub
from bullpen.client.tasks import (
    get_requested_task,
    get_task,
    list_tasks,
    offer_task,
)
from bullpen.directors.cancelling import cancel
from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.loop import request_key
from bullpen.directors.scheduler import ledger as ledgers
from bullpen.directors.scheduler.config import Entry
from bullpen.directors.scheduler.cron import next_occurrence
from bullpen.directors.scheduler.ledger import (
    Account,
    CancelTask,
    Close,
    GiveTask,
    Ledger,
    SchedulerAction,
)
from bullpen.directors.scheduler.plan import Snapshot, TaskSeen, plan
from bullpen.errors import BullpenError, Kind
from bullpen.model.task_shown import TaskShown

# Between two looks: the file may have been edited, the clock set, a task may be over.
LOOK_SECONDS = 5.0
DONE = "done"


class SchedulerRules:
    """Rules of one scheduler. `entries` gives the schedule as its file has it now, `zones` the time
    zone of each entry, `refusals` why an occurrence could not be given yet, `now` the time."""

    memory_type = Ledger
    action_type = SchedulerAction

    def __init__(
        self,
        name: str,
        hub: AsyncHub,
        schedule: Callable[[], tuple[Mapping[str, Entry], Mapping[str, str]]],
        refusals: Callable[[], Mapping[str, str]],
        now: Callable[[], float],
    ) -> None:
        self._name = name
        self._hub = hub
        self._schedule = schedule
        self._refusals = refusals
        self._now = now

    async def observe(self, memory: Ledger) -> Snapshot:
        entries, zones = self._schedule()
        tasks = await self._look(memory)
        return Snapshot(self._now(), entries, zones, tasks, self._refusals())

    async def _look(self, memory: Ledger) -> Mapping[str, TaskSeen] | None:
        ids = [one.task_id for one in memory.given.values()]
        if not ids:
            return {}
        try:
            tasks = {task.task_id: _seen(task) for task in (await self._hub.do(list_tasks())).tasks}
            for id in ids:
                if id not in tasks:
                    tasks[id] = await self._look_at(id)
        except BullpenError as error:
            if error.kind is Kind.UNAVAILABLE:
                return None
            raise
        return tasks

    async def _look_at(self, id: str) -> TaskSeen:
        try:
            return _seen(await self._hub.do(get_task(id)))
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return TaskSeen("lost", reason="the hub knows its task no more")

    def plan(self, snapshot: Snapshot, memory: Ledger) -> Sequence[SchedulerAction]:
        return plan(snapshot, memory)

    async def act(self, action: SchedulerAction) -> str:
        match action:
            case GiveTask():
                return await self._give(action)
            case CancelTask():
                await cancel(self._hub, action.task_id)
        return DONE

    async def _give(self, action: GiveTask) -> str:
        call = offer_task(
            action.prompt,
            agent=action.agent,
            role=action.role,
            labels=action.labels or None,
            fleet=bool(action.branch) or None,
            project=action.project,
            workdir=None if action.branch else action.workdir,
            repo=action.workdir if action.branch else None,
            worktree=action.branch if action.branch and action.workdir else None,
            model=action.model,
            timeout_seconds=action.timeout_seconds,
            request=request_key(self._name, action),
        )
        try:
            return (await self._hub.do(call)).task_id
        except BullpenError as error:
            # An agent that does not run may be started within the entry's time.
            if action.agent and error.kind in (Kind.NOT_FOUND, Kind.CONFLICT):
                raise ActionError(error.message, Verdict.LATER, hint=error.hint) from error
            raise

    async def resume(self, action: SchedulerAction) -> str | None:
        if not isinstance(action, GiveTask):
            return await self.act(action)  # twice is once
        # Only asked for, never given again here: its time may be over, or its entry removed, since
        # the earlier try. `plan` knows that.
        try:
            call = get_requested_task(request_key(self._name, action))
            return (await self._hub.do(call)).task_id
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return None

    def remember(self, memory: Ledger, action: SchedulerAction, outcome: str) -> Ledger:
        match action:
            case Account():
                return ledgers.accounted(memory, action)
            case GiveTask():
                return ledgers.given(memory, action, outcome, self._now())
            case CancelTask():
                return ledgers.cancelled(memory, action)
            case Close():
                return ledgers.closed(memory, action.row)

    def give_up(self, memory: Ledger, action: SchedulerAction, reason: str) -> Ledger:
        match action:
            case GiveTask():
                return ledgers.refused(memory, action.id, reason, self._now())
            case CancelTask():
                return ledgers.cancelled(memory, action)
        return memory

    def pause_seconds(self, memory: Ledger) -> float:
        now = self._now()
        tracked = memory.tracked.values()
        dues = [next_occurrence(one.cron, one.zone, one.since) for one in tracked]
        waits = [due - now for due in dues if due is not None]
        return max(0.0, min([LOOK_SECONDS, *waits]))


def _seen(task: TaskShown) -> TaskSeen:
    reason = task.error.message if task.error is not None else task.reason or ""
    return TaskSeen(
        state=task.state,
        agent=task.agent or "",
        reason=reason,
        completed_at=task.completed_at or 0.0,
        was_begun=task.started_at is not None,
    )

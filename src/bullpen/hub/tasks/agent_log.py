"""The life of a task agent as a component: its log, and what of its tasks is noted there.

Used by `tasks/agents`. Holds the moves of tasks, never what they say or are told.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from bullpen.component.lifecycle import Life
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.model.component import Level
from bullpen.model.state import Stage, Starting
from bullpen.model.task import Failed, Queued, Task

FOLLOW_SECONDS = 3600.0

TASK_LEVELS: dict[str, Level] = {
    "queued": "debug",
    "idle": "debug",
    "cancelling": "debug",
    "failed": "warn",
}


@dataclass(kw_only=True)
class TaskAgent(Life):
    """One task agent while it runs. Its stage is in its view, which the hub records."""

    live: LiveAgent
    given: int = 0  # tasks that are just being taken
    log_level: Level = "info"
    checking: asyncio.Task[None] | None = None
    following: asyncio.Task[None] | None = None

    @property
    def stage(self) -> Stage:
        return self.live.view.stage or Starting()


async def follow_tasks(name: str, task_agent: TaskAgent, tasks: TaskQueue) -> None:
    """Note the moves of its tasks in its log; of quick ones perhaps not all, but each end."""
    board, last = tasks.board, None
    while True:
        task = tasks.current(name)
        if last is not None and not last.is_over and (task is None or task.id != last.id):
            with contextlib.suppress(BullpenError):  # no longer kept
                last = await board.get(last.id)
                _note_task(task_agent, last)
            last = None
            continue
        if task is not None and (last is None or task.state != last.state):
            _note_task(task_agent, task)
        last = task
        await board.next_news(FOLLOW_SECONDS, name)


def _note_task(task_agent: TaskAgent, task: Task) -> None:
    fields: dict[str, object] = {"task": task.id}
    if isinstance(task.status, Failed):
        fields["type"] = task.status.error.type
    if isinstance(task.status, Queued) and task.status.due:
        task_agent.note("warn", "a task met a rate limit", until=task.status.due, **fields)
        return
    task_agent.note(TASK_LEVELS.get(task.state, "info"), f"a task is {task.state}", **fields)

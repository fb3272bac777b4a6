"""Why an agent does not take a task now, and what to do about it. Used by `queue`."""

import math
import time

from bullpen.clock import local_time
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.registry import LiveAgent
from bullpen.model.task import Task


def refuse_none(live: LiveAgent) -> None:
    """Raise if it is nobody who takes tasks, busy or not."""
    name = live.agent.name
    if not live.agent.takes_tasks:
        raise BullpenError(
            f"{name} works in a terminal and takes no tasks",
            hint=f'bullpen send {name} "…" · or bullpen agent start',
            kind=Kind.CONFLICT,
        )
    if not live.is_running:
        raise BullpenError(
            f"{name} is not running", hint=f"bullpen agent start {name}", kind=Kind.CONFLICT
        )


def limited(name: str, until: float) -> BullpenError:
    """It is parked."""
    seconds = max(1, math.ceil(until - time.time()))
    return BullpenError(
        f"{name} waits for its rate limit to be reset, at {local_time(until)}",
        hint=_wait_for(name),
        kind=Kind.CONFLICT,
        details={"error": "rate_limited", "retry_after": seconds},
    )


def busy(name: str, task: Task) -> BullpenError:
    """It has a task."""
    return BullpenError(
        f"{name} has a task already: {task.id} is {task.state}",
        hint=f"{_wait_for(name)} · bullpen task show {task.id}",
        kind=Kind.CONFLICT,
        details={
            "error": "agent_busy",
            "retryable": True,
            "current_task": {
                "id": task.id,
                "started_at": task.started,
                "prompt_preview": task.preview,
            },
        },
    )


def _wait_for(name: str) -> str:
    return f'bullpen task --queue {name} "…" · or bullpen task --any for whoever is free'

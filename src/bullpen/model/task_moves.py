"""How a task moves from one state to the next, and when it has to end.

Pure. Each move makes another value and is one event; moves that do not exist raise.
"""

from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import Budget
from bullpen.model.task import (
    Cancelled,
    Cancelling,
    Completed,
    Error,
    ErrorType,
    Failed,
    Final,
    Queued,
    Resting,
    Run,
    Status,
    Task,
    Working,
)

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0

MOVES: dict[type[Any], tuple[type[Any], ...]] = {
    Queued: (Working, Failed, Cancelled),
    Working: (Working, Resting, Completed, Failed, Cancelling),
    Resting: (Working, Completed, Failed, Cancelled),
    Cancelling: (Cancelled,),
    Completed: (),
    Failed: (),
    Cancelled: (),
}


def move(task: Task, status: Status, at: float, **more: Any) -> Task:
    """The task in its next state; raises for a move that does not exist."""
    if type(status) not in MOVES[type(task.status)]:
        raise ValueError(f"a task does not go from {task.state} to {status.state}")
    ended = at if isinstance(status, Final) else None
    return task.model_copy(update={"status": status, "ended": ended, **more})


def begin(task: Task, at: float) -> Task:
    """Its first run is to start."""
    if not isinstance(task.status, Queued):
        raise ValueError(f"a task that is {task.state} has begun")
    return move(task, Working(run=1, turn_started=at), at, started=at)


def go_on(task: Task, prompt: str, at: float, request: str = "") -> Task:
    """Another turn. A task that works or is over takes none; one request twice is one turn."""
    if request and request in task.requests:
        return task
    refuse_unless_open(task)
    run = task.runs[-1].number + 1 if task.runs else 1
    more = {"turns": (*task.turns, prompt), "requests": (*task.requests, request)}
    return move(task, Working(run=run, turn_started=at), at, **more)


def end(task: Task, at: float, request: str = "") -> Task:
    """No more turns."""
    if request and request in task.requests:
        return task
    refuse_unless_open(task)
    return move(task, Completed(), at, requests=(*task.requests, request))


def cancel(task: Task, at: float) -> Task:
    """What runs is told to end first; what does not is over at once. Asked twice, the first
    counts."""
    match task.status:
        case Cancelling():
            return task
        case Working():
            return move(task, Cancelling(since=at, run=task.status.run), at)
        case Queued() | Resting():
            return move(task, Cancelled(), at)
        case _:
            raise already_over(task)


def fail(task: Task, kind: ErrorType, message: str, at: float, **more: Any) -> Task:
    """Over, for that reason."""
    return move(task, Failed(error=Error(type=kind, message=message)), at, **more)


def after_run(
    task: Task, run: Run, text: str, *, stays_open: bool, retries: int, chance: float
) -> Task:
    """What a run that ended by itself, or after a cancel, leads to. `chance` is in [0, 1)."""
    at, runs = run.ended, (*task.runs, run)
    output = text if text or not run.fault else task.output
    if isinstance(task.status, Cancelling):
        return move(task, Cancelled(), at, runs=runs, output=output)
    assert isinstance(task.status, Working)
    if not run.fault:
        status: Status = Resting(since=at) if stays_open else Completed()
        return move(task, status, at, runs=runs, output=output)
    if run.is_retryable and task.status.attempt <= retries:
        again = Working(
            run=run.number + 1,
            turn_started=task.status.turn_started,
            attempt=task.status.attempt + 1,
            due=at + wait_seconds(task.status.attempt, chance),
        )
        return move(task, again, at, runs=runs, output=output)
    kind: ErrorType = "claude_error" if run.fault == "cancelled" else run.fault
    return fail(task, kind, run.why or "it ended without a result", at, runs=runs, output=output)


def wait_seconds(attempt: int, chance: float) -> float:
    """Longer with each attempt, and not all at the same moment."""
    doubled: float = FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
    return min(doubled, LONGEST_WAIT_SECONDS) * (0.5 + chance)


def refuse_unless_open(task: Task) -> None:
    """For what only a task that rests can take."""
    if task.is_over:
        raise already_over(task)
    if not isinstance(task.status, Resting):
        raise BullpenError(
            f"task {task.id} is {task.state}",
            hint="wait until it rests, or cancel it",
            kind=Kind.CONFLICT,
            details={"error": "task_in_progress", "task_id": task.id, "retryable": True},
        )


def already_over(task: Task) -> BullpenError:
    """For what comes too late."""
    return BullpenError(
        f"task {task.id} is over: it {_ended_as(task)}",
        kind=Kind.CONFLICT,
        details={"error": "already_completed", "final_state": task.state, "task_id": task.id},
    )


def _ended_as(task: Task) -> str:
    return {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}[task.state]


# ── when it has to end ──


def verdict(
    task: Task, timeout_seconds: float, now: float, used_tokens: int = 0
) -> tuple[ErrorType, str] | None:
    """Why its turn may go on no longer; `used_tokens` are those of the run that is under way."""
    status, budget = task.status, task.wish.budget
    if not isinstance(status, Working):
        return None
    if now >= status.turn_started + timeout_seconds:
        return "timeout", f"it took longer than {timeout_seconds:g} s"
    why = _used_up(task, budget, now, used_tokens) if budget else ""
    return ("budget", why) if why else None


def _used_up(task: Task, budget: Budget, now: float, used_tokens: int) -> str:
    if budget.minutes and worked_seconds(task, now) >= budget.minutes * 60:
        return f"it took longer than the {budget.minutes} minutes it was given"
    used = used_tokens + sum(run.input_tokens + run.output_tokens for run in task.runs)
    if budget.tokens and used > budget.tokens:
        return f"it used {used} tokens, and was given {budget.tokens}"
    if budget.usd and spent_usd(task) >= budget.usd:
        return f"it cost {spent_usd(task):.2f} USD, and was given {budget.usd:g}"
    return ""


def seconds_left(task: Task, timeout_seconds: float, now: float) -> float:
    """Until its time is over."""
    status, budget = task.status, task.wish.budget
    if not isinstance(status, Working):
        return 0.0
    ends = [status.turn_started + timeout_seconds]
    if budget and budget.minutes:
        ends.append(now + budget.minutes * 60 - worked_seconds(task, now))
    return max(0.0, min(ends) - now)


def worked_seconds(task: Task, now: float) -> float:
    """In all turns; while it rests it does not work."""
    began = task.status.turn_started if isinstance(task.status, Working) else now
    before = sum(run.ended - run.began for run in task.runs if run.ended <= began)
    return before + max(0.0, now - began)


def spent_usd(task: Task) -> float:
    """What its runs have cost that are over."""
    return sum(run.usd for run in task.runs)

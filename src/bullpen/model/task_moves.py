"""How a task moves from one status to the next, and when it has to end.

Pure. Each move returns a new value and is one event; a move that is not allowed raises.
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
    TaskWorking,
)
from bullpen.text import seconds_text

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
MOST_LIMITS = 10  # a turn that meets more rate limits has failed

MOVES: dict[type[Any], tuple[type[Any], ...]] = {
    Queued: (TaskWorking, Failed, Cancelling, Cancelled),
    TaskWorking: (TaskWorking, Queued, Resting, Completed, Failed, Cancelling, Cancelled),
    Resting: (TaskWorking, Completed, Failed, Cancelled),
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
    """Its next run is to start: the first, or the one after a rate limit."""
    if not isinstance(task.status, Queued):
        raise ValueError(f"a task that is {task.state} has begun")
    working = TaskWorking(run=_next_run(task), turn_started=at, limits=task.status.limits)
    return move(task, working, at, started=task.started or at)


def go_on(task: Task, prompt: str, at: float, request: str = "") -> Task:
    """Another turn. A task that works or is over takes none; one request twice is one turn."""
    if request and request in task.requests:
        return task
    refuse_unless_open(task)
    more = {"turns": (*task.turns, prompt), "requests": (*task.requests, request)}
    return move(task, TaskWorking(run=_next_run(task), turn_started=at), at, **more)


def _next_run(task: Task) -> int:
    return task.runs[-1].number + 1 if task.runs else 1


def end(task: Task, at: float, request: str = "") -> Task:
    """No more turns."""
    if request and request in task.requests:
        return task
    refuse_unless_open(task)
    return move(task, Completed(), at, requests=(*task.requests, request))


def cancel(task: Task, at: float) -> Task:
    """A task that runs is asked to end first; one that does not run is over at once. Of two
    requests the first counts."""
    match task.status:
        case Cancelling():
            return task
        case Queued() | TaskWorking() if task.fleet:
            return move(task, Cancelling(since=at, run=0), at)
        case TaskWorking():
            return move(task, Cancelling(since=at, run=task.status.run), at)
        case Queued() | Resting():
            return move(task, Cancelled(), at)
        case _:
            raise already_over(task)


def take_elsewhere(task: Task, taken_by: str, at: float, *warnings: str) -> Task:
    """An agent of the fleet has taken it; with nobody's name it was given back."""
    task = task.model_copy(update={"taken_by": taken_by, "warnings": warnings})
    match task.status:
        case Queued() if taken_by:
            working = TaskWorking(run=1, turn_started=at)
            return move(task, working, at, started=task.started or at)
        case TaskWorking() if not taken_by:
            return move(task, Queued(), at)
        case _:
            return task


def end_elsewhere(task: Task, status: Final, taken_by: str, at: float, **more: Any) -> Task:
    """An agent of the fleet has done it: before one knew who, or before it could be cancelled."""
    task = take_elsewhere(task, taken_by, at)
    if isinstance(task.status, Cancelling):
        return task.model_copy(update={"status": status, "ended": at, **more})
    return move(task, status, at, **more)


def fail(task: Task, kind: ErrorType, message: str, at: float, **more: Any) -> Task:
    """Over, for that reason."""
    return move(task, Failed(error=Error(type=kind, message=message)), at, **more)


def after_run(
    task: Task,
    run: Run,
    text: str,
    *,
    stays_open: bool,
    retries: int,
    chance: float,
    limited_until: float | None = None,
) -> Task:
    """What a run that ended by itself, or after a cancel, leads to. `chance` is in [0, 1). One that
    met a rate limit goes back to the queue, until `limited_until`."""
    at, runs = run.ended, (*task.runs, run)
    output = text if text or not run.fault else task.output
    if run.fault == "killed":
        return move(task, Cancelled(reason="killed"), at, runs=runs, output=output)
    if isinstance(task.status, Cancelling):
        return move(task, Cancelled(), at, runs=runs, output=output)
    assert isinstance(task.status, TaskWorking)
    if not run.fault:
        status: Status = Resting(since=at) if stays_open else Completed()
        return move(task, status, at, runs=runs, output=output)
    if run.is_retryable and task.status.attempt <= retries:
        again = TaskWorking(
            run=run.number + 1,
            turn_started=task.status.turn_started,
            attempt=task.status.attempt + 1,
            due=at + wait_seconds(task.status.attempt, chance),
            limits=task.status.limits,
        )
        return move(task, again, at, runs=runs, output=output)
    if limited_until is not None and task.status.limits < MOST_LIMITS:
        waiting = Queued(limits=task.status.limits + 1, due=limited_until)
        return move(task, waiting, at, runs=runs, output=output)
    kind: ErrorType = "engine_error" if run.fault == "cancelled" else run.fault
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
    if not isinstance(status, TaskWorking):
        return None
    if now >= status.turn_started + timeout_seconds:
        return "timeout", f"it took longer than {seconds_text(timeout_seconds)}"
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
    if not isinstance(status, TaskWorking):
        return 0.0
    ends = [status.turn_started + timeout_seconds]
    if budget and budget.minutes:
        ends.append(now + budget.minutes * 60 - worked_seconds(task, now))
    return max(0.0, min(ends) - now)


def worked_seconds(task: Task, now: float) -> float:
    """In all turns; while it rests it does not work."""
    began = task.status.turn_started if isinstance(task.status, TaskWorking) else now
    before = sum(run.ended - run.began for run in task.runs if run.ended <= began)
    return before + max(0.0, now - began)


def spent_usd(task: Task) -> float:
    """What its runs have cost that are over."""
    return sum(run.usd for run in task.runs)

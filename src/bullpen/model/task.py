"""A task: one prompt given to an agent, with an end. What was asked, how it stands, how it moves.

Pure. Each move makes another value and is one event; moves that do not exist raise. A task has
turns (the prompt, and each one that continues it) and every turn has runs: one, or more if the
model's API failed in between. Values of its environment are not here: they lie in a private file.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from bullpen.errors import BullpenError, Kind
from bullpen.model.fields import Labels, RoleName
from bullpen.model.role import Budget, Variable
from bullpen.model.state import Value

MOST_PROMPT = 1 << 20
TIMEOUT_SECONDS = 30 * 60.0
MOST_SECONDS = 7 * 86400.0
OPEN_SECONDS = 3600.0
RETRIES = 3
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
PREVIEW_CHARACTERS = 80
TASK_ID = r"^t-[0-9a-f]{12}$"
SESSION_ID = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

Prompt = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MOST_PROMPT, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$"),
]
Line = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
Plain = Annotated[str, Field(max_length=1 << 17, pattern=r"^[^\x00]*$")]
Word = Annotated[str, Field(max_length=200, pattern=r"^[^\s\x00-][^\s\x00]*$")]
ErrorType = Literal[
    "timeout", "sandbox_error", "claude_error", "rate_limit", "budget", "lost", "setup_failed"
]
Fault = Literal["", "claude_error", "rate_limit", "budget", "cancelled", "lost", "sandbox_error"]


# ── what is asked ────────────────────────────────────────────────────────────


class Context(Value):
    """A project, told along with the task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
    prompt: Annotated[str, Field(max_length=MOST_PROMPT, pattern=r"^[^\x00]*$")] = ""


class Wish(Value):
    """What is kept of what was asked: all but the values of its environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt
    model: Word | None = None
    timeout_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)] | None = (
        None
    )
    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    keep_open: bool | None = None
    project: Context | Line | None = None
    workdir: Line | None = None
    repo: Line | None = None
    worktree: Line | None = None
    budget: Budget | None = None


RequestKey = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Asked(Wish):
    """The body of `POST /task`. The same `request` asked twice is one task."""

    env: dict[Variable, Plain] = Field(default_factory=dict)
    request: RequestKey | None = None


class Offered(Asked):
    """The body of `POST /tasks`: for whichever idle agent fits."""

    role: RoleName | None = None
    labels: Labels = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


def check_places(wish: Wish) -> None:
    """At most one way to say where; a branch belongs to a repository."""
    given = [name for name in ("session_id", "workdir", "repo") if getattr(wish, name) is not None]
    if len(given) > 1:
        raise BullpenError(
            f"only one of session_id, workdir and repo says where a task works, not {given}"
        )
    if (wish.worktree is None) != (wish.repo is None):
        raise BullpenError(
            "repo and worktree belong together: the repository, and the branch of the worktree"
        )


def fits(offered: "Task", role: str, labels: Mapping[str, str]) -> bool:
    """Whether an agent of that role and those labels may take it from the queue."""
    return (not offered.role or offered.role == role) and all(
        labels.get(name) == value for name, value in offered.labels.items()
    )


# ── how it stands ────────────────────────────────────────────────────────────


class Error(Value):
    """Why a task failed."""

    type: ErrorType
    message: str


class Queued(Value):
    """Acknowledged, not begun: it waits for an agent, for its directory, for its set-up."""

    state: Literal["queued"] = "queued"


class Working(Value):
    """A run is under way, or one is due at `due`."""

    state: Literal["working"] = "working"
    run: int  # counts all of the task
    turn_started: float
    attempt: int = 1  # of this turn
    due: float = 0.0


class Resting(Value):
    """The model has answered, and may be asked on."""

    state: Literal["idle"] = "idle"
    since: float


class Cancelling(Value):
    """Told to end; its run is not over yet."""

    state: Literal["cancelling"] = "cancelling"
    since: float
    run: int


class Completed(Value):
    """Over; the output is there."""

    state: Literal["completed"] = "completed"


class Failed(Value):
    """Over, for a reason."""

    state: Literal["failed"] = "failed"
    error: Error


class Cancelled(Value):
    """Over, because somebody asked; what was said until then is kept."""

    state: Literal["cancelled"] = "cancelled"


Status = Annotated[
    Queued | Working | Resting | Cancelling | Completed | Failed | Cancelled,
    Field(discriminator="state"),
]
STATES = ("queued", "working", "idle", "completed", "failed", "cancelling", "cancelled")
Final = Completed | Failed | Cancelled


class Run(Value):
    """One run of the engine, when it is over."""

    number: int
    began: float
    ended: float
    exit_code: int | None = None
    signal: int | None = None
    fault: Fault = ""
    why: str = ""
    is_retryable: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0


class Task(Value):
    """One task, as the database keeps it."""

    id: str
    agent: str = ""  # empty: whoever is free
    session_id: str
    request: str = ""
    wish: Wish
    env_names: tuple[str, ...] = ()
    role: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    priority: int = 0
    created: float
    started: float | None = None
    ended: float | None = None
    status: Status = Queued()
    directory: str = ""
    turns: tuple[str, ...] = ()  # prompts that continued it
    requests: tuple[str, ...] = ()  # that continued or ended it
    runs: tuple[Run, ...] = ()
    output: str | None = None
    base: str = ""  # the commit that its directory was at
    commits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return self.status.state

    @property
    def is_over(self) -> bool:
        return isinstance(self.status, Final)

    @property
    def prompt(self) -> str:
        """Of the present turn."""
        return self.turns[-1] if self.turns else self.wish.prompt

    @property
    def preview(self) -> str:
        return " ".join(self.wish.prompt.split())[:PREVIEW_CHARACTERS]


# ── how it moves ─────────────────────────────────────────────────────────────

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


# ── how it is shown ──────────────────────────────────────────────────────────


class Tokens(Value):
    """What the model read and wrote."""

    input: int
    output: int


class Shown(Value):
    """A task as the API shows it; what is not known is null."""

    task_id: str
    state: str
    agent: str | None
    session_id: str
    prompt: str
    exit_code: int | None
    created_at: float
    started_at: float | None
    completed_at: float | None
    duration_seconds: float | None
    output: str | None
    error: Error | None
    token_usage: Tokens | None
    cost_usd: float | None
    directory: str | None
    turns: int
    runs: tuple[Run, ...]
    env_names: tuple[str, ...]
    doing: str | None  # the tool that it uses, while it works
    commits: tuple[str, ...]
    warnings: tuple[str, ...]


class Progress(Value):
    """What the run that is under way has said so far."""

    text: str = ""
    tool: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


def show(task: Task, now: float, progress: Progress | None = None) -> Shown:
    """The task with what is known at this moment."""
    end = task.ended if task.ended is not None else now
    live = progress or Progress()
    last = task.runs[-1] if task.runs else None
    tokens = None
    if task.runs or progress:
        tokens = Tokens(
            input=sum(run.input_tokens for run in task.runs) + live.input_tokens,
            output=sum(run.output_tokens for run in task.runs) + live.output_tokens,
        )
    return Shown(
        task_id=task.id,
        state=task.state,
        agent=task.agent or None,
        session_id=task.session_id,
        prompt=task.wish.prompt,
        exit_code=last.exit_code if last else None,
        created_at=task.created,
        started_at=task.started,
        completed_at=task.ended,
        duration_seconds=None if task.started is None else round(max(0.0, end - task.started), 3),
        output=live.text or task.output if progress else task.output,
        error=task.status.error if isinstance(task.status, Failed) else None,
        token_usage=tokens,
        cost_usd=round(spent_usd(task), 6) if task.runs else None,
        directory=task.directory or None,
        turns=1 + len(task.turns),
        runs=task.runs,
        env_names=task.env_names,
        doing=live.tool or None,
        commits=task.commits,
        warnings=task.warnings,
    )

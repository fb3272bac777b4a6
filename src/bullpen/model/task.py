"""A task: one prompt given to an agent, with an end. What was asked, and how it stands.

Pure. A task has turns (the prompt, and each one that continues it) and every turn has runs: one,
or more if the model's API failed in between. How it moves is in `task_moves`, how it is shown in
`task_shown`. Values of its environment are not here: they lie in a private file.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from bullpen.errors import BullpenError
from bullpen.model.fields import Labels, RoleName
from bullpen.model.role import Budget, Variable
from bullpen.model.state import Value

MOST_PROMPT = 1 << 20
TIMEOUT_SECONDS = 30 * 60.0
MOST_SECONDS = 7 * 86400.0
OPEN_SECONDS = 3600.0
RETRIES = 3
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
    before: str = ""  # the tree of what was changed there and not committed
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

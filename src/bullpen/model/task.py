"""A task: one prompt for an agent, with an end. The request, and the status of the task.

Pure. A task has turns (the prompt, and each one that continues it). A turn has runs: one, or more
if the model's API failed. Moves are in `task_moves`, the API's form in `task_shown`. Values of
its environment are not here: they are in a private file.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from bullpen.errors import BullpenError
from bullpen.model.fields import AgentName, Labels, RoleName, empty_is_unset
from bullpen.model.role import Budget, Variable
from bullpen.model.value import Value

MOST_PROMPT = 1 << 20
MOST_SECONDS = 7 * 86400.0
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
ModelName = Annotated[Word | None, BeforeValidator(empty_is_unset)]
OLD_WORDS = {"claude_error": "engine_error"}  # in databases of before, and for old callers


def _today(word: object) -> object:
    """The word of today for an old one."""
    return OLD_WORDS.get(word, word) if isinstance(word, str) else word


ErrorType = Annotated[
    Literal[
        "timeout", "sandbox_error", "engine_error", "rate_limit", "budget", "lost", "setup_failed"
    ],
    BeforeValidator(_today),
]
Fault = Annotated[
    Literal["", "engine_error", "rate_limit", "budget", "timeout", "cancelled", "killed", "lost"]
    | Literal["sandbox_error"],
    BeforeValidator(_today),
]


# ── what is asked ────────────────────────────────────────────────────────────


class Context(Value):
    """A project, given to the model with the task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
    prompt: Annotated[str, Field(max_length=MOST_PROMPT, pattern=r"^[^\x00]*$")] = ""


class Wish(Value):
    """What is kept of what was asked: all but the values of its environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt
    model: ModelName = None
    timeout_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)] | None = (
        None
    )
    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    keep_open: bool | None = None
    project: Context | Line | None = None
    workdir: Line | None = None
    repo: Line | None = None
    worktree: Line | None = None
    branch: Annotated[
        Line | None,
        Field(
            description="where `workdir` or the project lies in a git repository: it works in a"
            " worktree on this branch, begun at what is checked out there; else as without it"
        ),
    ] = None
    budget: Budget | None = None
    sandboxed: Literal["required"] | None = None


RequestKey = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class TaskRequest(Wish):
    """The body of `POST /task`. The same `request` asked twice is one task."""

    env: dict[Variable, Plain] = Field(default_factory=dict)
    request: RequestKey | None = None


class QueuedTaskRequest(TaskRequest):
    """The body of `POST /tasks`: for whichever idle agent fits, or for one when it is free. With
    `fleet` for those of all machines."""

    agent: AgentName | None = None
    role: RoleName | None = None
    labels: Labels = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    fleet: bool = False


def check_fleet(request: QueuedTaskRequest) -> None:
    """Refuse what means something on this machine alone, or would lie in the server for others to
    read."""
    alone = ("agent", "session_id", "workdir", "branch", "project", "keep_open", "env", "priority")
    if named := [name for name in alone if getattr(request, name)]:
        raise BullpenError(f"a task for the fleet cannot have {', '.join(named)}")
    if request.repo is not None and not request.repo.startswith(("/", "~/")):
        raise BullpenError(
            "a task for the fleet takes its repository from here",
            hint="clone it, and name that directory",
        )


def check_directory(wish: Wish) -> None:
    """Refuse a wish that names more than one directory, or a branch without a repository."""
    ways = [name for name in ("session_id", "workdir", "repo") if getattr(wish, name) is not None]
    if len(ways) > 1:
        raise BullpenError(
            f"only one of session_id, workdir and repo says where a task works, not {ways}"
        )
    if (wish.worktree is None) != (wish.repo is None):
        raise BullpenError(
            "repo and worktree belong together: the repository, and the branch of the worktree"
        )
    if wish.branch is not None and (wish.session_id is not None or wish.repo is not None):
        raise BullpenError("branch goes with workdir or project, not with session_id or repo")


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
    """It waits for an agent, for its directory, for its set-up; after a run that met a rate limit,
    for the end of that limit."""

    state: Literal["queued"] = "queued"
    limits: int = 0  # that this turn has met so far
    due: float = 0.0  # when the last of them ends


class TaskWorking(Value):
    """A run is under way, or one is due at `due`."""

    state: Literal["working"] = "working"
    run: int  # counts all of the task
    turn_started: float
    attempt: int = 1  # of this turn
    due: float = 0.0
    limits: int = 0  # rate limits that this turn has met


class Resting(Value):
    """The model has answered, and may be asked on."""

    state: Literal["idle"] = "idle"
    since: float


class Cancelling(Value):
    """Asked to end; its run is not over yet."""

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
    """Over by request; its output until then is kept. `killed`: with everything of the home."""

    state: Literal["cancelled"] = "cancelled"
    reason: Literal["", "killed"] = ""


Status = Annotated[
    Queued | TaskWorking | Resting | Cancelling | Completed | Failed | Cancelled,
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
    is_untold: bool = False  # a model worked, and nobody told what it cost


class Giver(Value):
    """The agent that gave a task: its name, when it was first started, and the task that it did;
    the role that nobody may exceed who takes it (as that pod has it), if there is one; the branch
    that it works on itself, at which a new branch of a task begins."""

    name: str
    born: str
    task: str = ""  # empty: it was in a terminal
    may_grant: str = ""
    pod: str = ""
    branch: str = ""

    def is_same(self, other: "Giver") -> bool:
        """Whether what one gave is the other's own."""
        return (self.name, self.born, self.task) == (other.name, other.born, other.task)


class Task(Value):
    """One task, as the database keeps it."""

    id: str
    agent: str = ""  # empty: whoever is free
    session_id: str
    request: str = ""
    director: str = ""  # that gave it; empty: the owner did, or an agent
    giver: Giver | None = None
    wish: Wish
    env_names: tuple[str, ...] = ()
    role: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    priority: int = 0
    fleet: bool = False  # it waits for agents of all machines
    taken_by: str = ""  # HOST/AGENT of the fleet that does it, or did
    created: float
    started: float | None = None
    ended: float | None = None
    status: Status = Queued()
    directory: str = ""
    branch: str = ""  # of the worktree that its directory is, if that was made for tasks
    turns: tuple[str, ...] = ()  # prompts that continued it
    requests: tuple[str, ...] = ()  # that continued or ended it
    runs: tuple[Run, ...] = ()
    output: str | None = None
    base: str = ""  # the commit that its directory was at
    before: str = ""  # the tree of what was changed there and not committed
    commits: tuple[str, ...] = ()
    commit_count: int = 0  # of all; 0 in tasks of an earlier version
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

"""A task as the API shows it. Pure."""

from pydantic import Field

from bullpen.model.task import Cancelled, Error, Failed, Queued, Run, Task
from bullpen.model.task_moves import spent_usd
from bullpen.model.value import Value

ROW_CHARACTERS = 300


class Tokens(Value):
    """What the model read and wrote."""

    input: int
    output: int


class TaskShown(Value):
    """A task as the API shows it; what is not known is null."""

    task_id: str
    state: str
    agent: str | None
    director: str | None = Field(default=None, description="that gave it; null: the owner did")
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
    branch: str | None = Field(
        default=None, description="that its work is on, if it works in a worktree made for tasks"
    )
    turns: int
    runs: tuple[Run, ...]
    env_names: tuple[str, ...]
    doing: str | None  # the tool that it uses, while it works
    limited_until: float | None = Field(
        default=None, description="it waits in the queue for the end of a rate limit"
    )
    commits: tuple[str, ...]
    commit_count: int = Field(description="of all commits, also of those that are not listed")
    warnings: tuple[str, ...]
    reason: str | None = Field(
        default=None, description="of a cancelled one: `killed` if the whole home was"
    )


class TaskAccepted(Value):
    """Acknowledged: it is on disk, and will be done."""

    task_id: str
    session_id: str
    status: str = "queued"


class TaskMoved(Value):
    """How a task stands after what was asked."""

    task_id: str
    state: str
    message: str = ""
    output: str | None = None


class TaskList(Value):
    """What is held now."""

    tasks: tuple[TaskShown, ...]


class History(Value):
    """One page, newest first."""

    items: tuple[TaskShown, ...]
    page: int
    limit: int
    total: int


class RunLog(Value):
    """What one run wrote; the end of it, if it is very long."""

    number: int
    stdout: str
    stderr: str


class Debug(Value):
    """The raw output of all runs."""

    task_id: str
    runs: tuple[RunLog, ...]


class TaskChanges(Value):
    """What a task did in a git checkout: texts as git shows them, each cut at a limit of its own.
    A text that begins with `#` says what is not shown, and why."""

    log: str = Field(description="each commit with the files that it touches")
    committed: str = Field(description="the difference of the commits at its beginning and end")
    uncommitted: str = Field(description="the difference of the last commit and the files")
    staged: str = Field(description="what the index has other than the last commit and the files")


class Complete(TaskShown):
    """A task with everything that is kept of it."""

    logs: tuple[RunLog, ...]
    changes: TaskChanges | None = Field(description="none before a run has ended in a git checkout")
    diff: str | None = Field(
        description="of tasks that an earlier version ran: all changes in one, without commits"
    )
    not_brought_over: tuple[str, ...] | None = Field(
        default=None,
        description="commits that its repository does not have, and why; null: that is not known"
        " before it is over and its work was looked through",
    )


class ProjectShown(Value):
    """One project file."""

    name: str
    prompt: str
    repo: str | None = None
    workdir: str | None = None
    error: str | None = Field(default=None, description="what is wrong with the file")


class Progress(Value):
    """What the run that is under way has said so far."""

    text: str = ""
    tool: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


def as_row(shown: TaskShown) -> TaskShown:
    """The same for a list: only the beginnings of what may be long."""
    output = None if shown.output is None else _beginning(shown.output)
    return shown.model_copy(update={"output": output, "prompt": _beginning(shown.prompt)})


def _beginning(text: str) -> str:
    return text if len(text) <= ROW_CHARACTERS else f"{text[:ROW_CHARACTERS]}…"


def show(task: Task, now: float, progress: Progress | None = None) -> TaskShown:
    """The task with what is known at this moment."""
    end = task.ended if task.ended is not None else now
    live = progress or Progress()
    last = task.runs[-1] if task.runs else None
    tokens = Tokens(
        input=sum(run.input_tokens for run in task.runs) + live.input_tokens,
        output=sum(run.output_tokens for run in task.runs) + live.output_tokens,
    )
    return TaskShown(
        task_id=task.id,
        state=task.state,
        agent=task.agent or task.taken_by or None,
        director=task.director or None,
        session_id=task.session_id,
        prompt=task.wish.prompt,
        exit_code=last.exit_code if last else None,
        created_at=task.created,
        started_at=task.started,
        completed_at=task.ended,
        duration_seconds=None if task.started is None else round(max(0.0, end - task.started), 3),
        output=live.text or task.output if progress else task.output,
        error=task.status.error if isinstance(task.status, Failed) else None,
        # What nobody has told is not nothing: a plain program tells neither, some engines no cost.
        token_usage=tokens if tokens.input or tokens.output else None,
        cost_usd=round(spent_usd(task), 6) or None,
        directory=task.directory or None,
        branch=task.branch or None,
        turns=1 + len(task.turns),
        runs=task.runs,
        env_names=task.env_names,
        doing=live.tool or None,
        limited_until=task.status.due or None if isinstance(task.status, Queued) else None,
        commits=task.commits,
        commit_count=max(task.commit_count, len(task.commits)),
        warnings=task.warnings,
        reason=task.status.reason or None if isinstance(task.status, Cancelled) else None,
    )

"""A task as the API shows it. Pure."""

from bullpen.model.state import Value
from bullpen.model.task import Error, Failed, Run, Task
from bullpen.model.task_moves import spent_usd


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
        # What nobody has told is not nothing: a plain program tells neither, some engines no cost.
        token_usage=tokens if tokens.input or tokens.output else None,
        cost_usd=round(spent_usd(task), 6) or None,
        directory=task.directory or None,
        turns=1 + len(task.turns),
        runs=task.runs,
        env_names=task.env_names,
        doing=live.tool or None,
        commits=task.commits,
        warnings=task.warnings,
    )

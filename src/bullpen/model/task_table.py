"""Tables of tasks: the cells of each row. Called by `hub/render` for the text of `bullpen tasks`
and `bullpen history`, and by commands for the words of a single task.

Nothing here is made printable: who lays a table out does that.
"""

from collections.abc import Sequence
from datetime import datetime

from bullpen.model.task import PREVIEW_CHARACTERS
from bullpen.model.task_shown import TaskShown
from bullpen.model.usage import short_count, short_seconds, short_usd
from bullpen.text import cut_to, printable

TOOL_COLUMNS = 24
OPEN_HEADERS = ("TASK", "AGENT", "STATE", "SINCE", "TOKENS", "PROMPT")
PAST_HEADERS = ("TASK", "AGENT", "STATE", "GIVEN", "TOOK", "TOKENS", "COST", "PROMPT")
DROPPED_HEADERS = ("TOKENS", "COST", "GIVEN", "TOOK", "AGENT", "SINCE")  # in a narrow terminal


def open_rows(tasks: Sequence[TaskShown], now: float) -> list[tuple[str, ...]]:
    """Of `bullpen tasks`."""
    return [
        (
            task.task_id,
            task.agent or "–",
            state_text(task),
            age(now - (task.started_at or task.created_at)),
            _tokens(task),
            preview(task),
        )
        for task in tasks
    ]


def past_rows(tasks: Sequence[TaskShown]) -> list[tuple[str, ...]]:
    """Of `bullpen history`."""
    return [
        (
            task.task_id,
            task.agent or "–",
            state_text(task),
            moment(task.created_at),
            "–" if task.duration_seconds is None else short_seconds(task.duration_seconds),
            _tokens(task),
            short_usd(task.cost_usd) if task.cost_usd else "–",
            preview(task),
        )
        for task in tasks
    ]


def state_text(task: TaskShown) -> str:
    """`working (Bash)`, `failed (timeout)`, `queued (rate limit until 14:05:00)`."""
    if task.error is not None:
        return f"{task.state} ({task.error.type})"
    if task.reason:
        return f"{task.state} ({task.reason})"
    if task.limited_until is not None:
        return f"{task.state} (rate limit until {moment(task.limited_until)})"
    if not task.doing or task.state != "working":
        return task.state
    # What the tool works on comes after its name.
    tool = task.doing.partition(" (")[0]
    return f"{task.state} ({cut_to(printable(tool), TOOL_COLUMNS)})"


def preview(task: TaskShown) -> str:
    """The beginning of the prompt in one line."""
    return " ".join(task.prompt.split())[:PREVIEW_CHARACTERS]


def moment(at: float | None) -> str:
    """Local time; with the date when it is not today's."""
    if at is None:
        return ""
    local = datetime.fromtimestamp(at).astimezone()
    is_today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def age(seconds: float) -> str:
    """`12s`, `3m20s`, `2h05m`."""
    return short_seconds(max(10.0, seconds)) if seconds >= 10 else f"{max(0, int(seconds))}s"


def _tokens(task: TaskShown) -> str:
    used = task.token_usage
    return short_count(used.input + used.output) if used and used.input + used.output else "–"

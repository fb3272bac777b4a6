"""How tasks look: one in full, many as a table, and what is said when one is over. Pure.

Everything that an agent or a prompt may have written is made printable here, but for the output
itself: that is `shown_output`'s, which has to know where it goes.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bullpen import paths
from bullpen.cli.task_progress import cut
from bullpen.model.task import PREVIEW_CHARACTERS, Error, Run
from bullpen.model.task_shown import Shown
from bullpen.model.usage import short_count, short_seconds, short_usd
from bullpen.text import printable, width

EXIT_FAILED, EXIT_TIMEOUT, EXIT_CANCELLED = 1, 124, 130
LEAST_PROMPT_COLUMNS = 20
TOOL_COLUMNS = 24
OPEN_HEADERS = ("TASK", "AGENT", "STATE", "SINCE", "TOKENS", "PROMPT")
PAST_HEADERS = ("TASK", "AGENT", "STATE", "GIVEN", "TOOK", "TOKENS", "COST", "PROMPT")


# ── the end of one ──


def exit_code(task: Shown) -> int:
    """What a command that waited for it leaves with."""
    if task.error is not None:
        return EXIT_TIMEOUT if task.error.type == "timeout" else EXIT_FAILED
    return EXIT_CANCELLED if task.state in ("cancelled", "cancelling") else 0


def verdict(task: Shown) -> str:
    """`task t-91c2… completed in 3m40s · 2 commits · bullpen task show t-91c2…`"""
    took = short_seconds(task.duration_seconds or 0.0)
    id = task.task_id
    match task.state:
        case "completed":
            head, last = f"completed in {took}", f"bullpen task show {id}"
        case "idle":
            head = "stays open"
            last = f'bullpen task continue {id} "…" · bullpen task end {id}'
        case "cancelled":
            head, last = f"was cancelled after {took}", f"bullpen task show {id}"
        case "failed":
            head, last = f"failed after {took}", f"bullpen task show {id}"
        case other:
            head, last = f"is {other}", f"bullpen task show {id}"
    return " · ".join(filter(None, (f"task {id} {head}", _commits(task), last)))


def hint_for(task: Shown, error: Error) -> str:
    """What a person can do about it."""
    agent = task.agent or "AGENT"
    go_on = f'bullpen task {agent} "go on" --session {task.session_id}'
    match error.type:
        case "timeout":
            return f"{go_on} --timeout 1h"
        case "rate_limit":
            return f"when the limit is over: {go_on}"
        case "budget":
            return f"with a higher --budget: {go_on}"
        case "sandbox_error":
            return "bullpen doctor"
        case "lost":
            return go_on
        case "claude_error" | "setup_failed":
            # What failed before a run has nothing to show, and its message says what to do.
            return f"bullpen task debug {task.task_id}" if task.runs else ""


def shown_output(text: str, is_terminal: bool) -> str:
    """As it is for a program; for a terminal without what would drive it. Ends with its line."""
    if is_terminal:
        text = printable(text.replace("\r\n", "\n").expandtabs(), lines=True)
    return text if not text or text.endswith("\n") else text + "\n"


# ── one in full ──


def task_lines(task: Shown) -> list[tuple[str, str]]:
    """What is known of it, a name and a value each; unknown things are left out."""
    tokens = task.token_usage
    fields = [
        ("task", task.task_id),
        ("state", state_text(task)),
        ("tool", task.doing or "" if task.state == "working" else ""),
        ("agent", task.agent or "whoever is free"),
        ("prompt", task.prompt.strip()),
        ("turns", str(task.turns) if task.turns > 1 else ""),
        ("session", task.session_id),
        ("directory", paths.shown(Path(task.directory)) if task.directory else ""),
        ("given", moment(task.created_at)),
        ("started", moment(task.started_at)),
        ("ended", moment(task.completed_at)),
        ("took", short_seconds(task.duration_seconds) if task.duration_seconds else ""),
        ("tokens", f"{short_count(tokens.input)} in, {short_count(tokens.output)} out")
        if tokens
        else ("tokens", ""),
        ("cost", short_usd(task.cost_usd) if task.cost_usd else ""),
        ("exit code", "" if task.exit_code in (0, None) else str(task.exit_code)),
        ("variables", ", ".join(task.env_names)),
        *(("attempt", _attempt(run)) for run in task.runs if run.fault),
        *(("commit", commit) for commit in task.commits),
        *(("warning", warning) for warning in task.warnings),
        ("error", f"{task.error.type}: {task.error.message}" if task.error else ""),
    ]
    return [(name, value) for name, value in fields if value]


def field_text(fields: Sequence[tuple[str, str]]) -> list[str]:
    """Those as lines; a value of several lines stands under itself."""
    size = max((width(name) for name, _ in fields), default=0)
    lines = []
    for name, value in fields:
        shown = printable(value.expandtabs(), lines=True).split("\n")
        lines += [
            f"{name if n == 0 else '':<{size}}  {part}".rstrip() for n, part in enumerate(shown)
        ]
    return lines


def _attempt(run: Run) -> str:
    return f"{run.number} failed: {run.fault}{f': {run.why}' if run.why else ''}"


# ── many ──


def open_rows(tasks: Sequence[Shown], now: float) -> list[tuple[str, ...]]:
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


def past_rows(tasks: Sequence[Shown]) -> list[tuple[str, ...]]:
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


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[str]], columns: int
) -> list[tuple[str, ...]]:
    """The rows printable, with the last column cut so that a line fits; 0 columns is no limit."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not columns or not cells:
        return [tuple(row) for row in cells]
    before = [*zip(*([list(headers), *cells]), strict=True)][:-1]
    used = sum(max(width(cell) for cell in column) + 2 for column in before)
    room = max(LEAST_PROMPT_COLUMNS, columns - used)
    return [(*row[:-1], cut(row[-1], room)) for row in cells]


def state_text(task: Shown) -> str:
    """`working (Bash)`, `failed (timeout)`."""
    if task.error is not None:
        return f"{task.state} ({task.error.type})"
    if not task.doing or task.state != "working":
        return task.state
    # What the tool works on comes after its name.
    tool = task.doing.partition(" (")[0]
    return f"{task.state} ({cut(printable(tool), TOOL_COLUMNS)})"


def preview(task: Shown) -> str:
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


def _tokens(task: Shown) -> str:
    used = task.token_usage
    return short_count(used.input + used.output) if used and used.input + used.output else "–"


def _commits(task: Shown) -> str:
    count = len(task.commits)
    return "" if not count else "1 commit" if count == 1 else f"{count} commits"

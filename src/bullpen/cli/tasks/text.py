"""How a task looks in full, and what is said when one is over. Many are `model/task_table`'s.

Everything that an agent or a prompt may have written is made printable here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.home import paths
from bullpen.model.task import Error, Run
from bullpen.model.task_shown import TaskChanges, TaskShown
from bullpen.model.task_table import moment, state_text
from bullpen.model.usage import short_count, short_seconds, short_usd
from bullpen.text import printable, width

if TYPE_CHECKING:
    from bullpen.client.hub import Hub

EXIT_FAILED, EXIT_TIMEOUT, EXIT_CANCELLED = 1, 124, 130


# ── the end of one ──


def exit_code(task: TaskShown) -> int:
    """What a command that waited for it leaves with."""
    if task.error is not None:
        return EXIT_TIMEOUT if task.error.type == "timeout" else EXIT_FAILED
    return EXIT_CANCELLED if task.state in ("cancelled", "cancelling") else 0


def named(task: TaskShown, hub: "Hub") -> TaskShown:
    """Task and agent as commands of this machine name them."""
    if not hub.host:
        return task
    names = {"task_id": hub.named(task.task_id)}
    names |= {"agent": hub.named(task.agent)} if task.agent else {}
    return task.model_copy(update=names)


def verdict(task: TaskShown) -> str:
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


def hint_for(task: TaskShown, error: Error) -> str:
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
        case "engine_error" | "setup_failed":
            # What failed before a run has nothing to show, and its message says what to do.
            return f"bullpen task debug {task.task_id}" if task.runs else ""


def shown_output(text: str, is_terminal: bool) -> str:
    """Without what would drive a terminal or mislead who reads it, also in a pipe, which may end at
    one: `--json` has it as it is. Ends with its line."""
    if is_terminal:
        text = text.replace("\r\n", "\n").expandtabs()
    text = "\r\n".join(printable(part, lines=True) for part in text.split("\r\n"))
    return text if not text or text.endswith("\n") else text + "\n"


def changes_text(changes: TaskChanges, count: int, is_terminal: bool) -> str:
    """What is committed, and what is not: always both, so that neither hides the other."""
    parts = {
        f"{count} commit{'s' * (count != 1)}, the oldest first": changes.log,
        "committed, all commits together": changes.committed or "nothing",
        "not committed": changes.uncommitted or "nothing",
        "staged, and other than in the files": changes.staged,
    }
    return "\n".join(
        f"── {title} ──\n{shown_output(text, is_terminal)}" for title, text in parts.items() if text
    )


def has_changes(changes: TaskChanges) -> bool:
    """Whether any part says anything."""
    return bool(changes.log or changes.committed or changes.uncommitted or changes.staged)


# ── one in full ──


def task_lines(task: TaskShown) -> list[tuple[str, str]]:
    """What is known of it, a name and a value each; unknown things are left out."""
    tokens = task.token_usage
    left_out = task.commit_count - len(task.commits)
    fields = [
        ("task", task.task_id),
        ("state", state_text(task)),
        ("tool", task.doing or "" if task.state == "working" else ""),
        ("agent", task.agent or "whoever is free"),
        ("prompt", task.prompt.strip()),
        ("turns", str(task.turns) if task.turns > 1 else ""),
        ("session", task.session_id),
        ("directory", paths.short_path(Path(task.directory)) if task.directory else ""),
        ("branch", task.branch or ""),
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
        ("commits", f"{left_out} earlier ones are not listed" if left_out else ""),
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
    if run.fault == "cancelled":
        return f"{run.number} was cancelled"
    return f"{run.number} failed: {run.fault}{f': {run.why}' if run.why else ''}"


def _commits(task: TaskShown) -> str:
    count = task.commit_count
    return "" if not count else "1 commit" if count == 1 else f"{count} commits"

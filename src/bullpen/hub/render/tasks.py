"""Tasks: `bullpen tasks` and `bullpen history` as text."""

import shlex
from collections.abc import Sequence

from bullpen.model.task_shown import History, TaskShown
from bullpen.model.task_table import (
    DROPPED_HEADERS,
    OPEN_HEADERS,
    PAST_HEADERS,
    open_rows,
    past_rows,
)
from bullpen.table import lay_out
from bullpen.text import printable

USUAL_LIMIT = 20  # of a page, if nobody says otherwise


def open_text(
    tasks: Sequence[TaskShown], agent: str, now: float, *, columns: int = 0, colour: bool = False
) -> str:
    """`bullpen tasks`: a line each. `agent`: whose they are; empty: everybody's."""
    if not tasks:
        of_whom = f" of {agent}" if agent else ""
        whom = agent or "AGENT"
        return f'no open tasks{of_whom} · bullpen task {whom} "…" · bullpen history\n'
    return _table(OPEN_HEADERS, open_rows(tasks, now), columns, colour)


def history_text(
    history: History,
    agent: str,
    filters: dict[str, str],
    *,
    columns: int = 0,
    colour: bool = False,
) -> str:
    """`bullpen history`: a line each, and how to see the next page. `filters`: what the command
    was told beside the agent."""
    if not history.items:
        if history.total:
            return "no tasks on that page · --page 1\n"
        is_filtered = bool(agent or filters)
        return "no such tasks\n" if is_filtered else 'no tasks yet · bullpen task AGENT "…"\n'
    text = _table(PAST_HEADERS, past_rows(history.items), columns, colour)
    pages = -(-history.total // history.limit)
    if history.page >= pages:
        return text
    words = [agent, *(f"--{key}={value}" for key, value in filters.items())]
    words += [f"--limit={history.limit}"] if history.limit != USUAL_LIMIT else []
    next_page = ["--page", str(history.page + 1)]
    again = shlex.join(["bullpen", "history", *filter(None, words), *next_page])
    return text + printable(f"page {history.page} of {pages} · {again}") + "\n"


def _table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], columns: int, colour: bool
) -> str:
    cells = [[printable(cell) for cell in row] for row in rows]
    first, *lines = lay_out(headers, [headers, *cells], columns, drop=DROPPED_HEADERS)
    return "\n".join([f"\x1b[2m{first}\x1b[0m" if colour else first, *lines]) + "\n"

"""What a task says while it runs, as server-sent events.

Everything comes from the logs of its runs, so a stream that broke off goes on without a gap and
without a repetition, also after a restart of the hub: the id of an event is where it stands there.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from typing import Any

from bullpen.engines import get_engine
from bullpen.engines.base import Reader
from bullpen.engines.lines import (
    Line,
    ModelText,
    Partial,
    Retrying,
    RunOutcome,
    TokensSpent,
    ToolDenied,
    ToolUsed,
    TurnBegun,
)
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.tasks.board import Board
from bullpen.hub.tasks.run import OUTPUT, Fact, LogReader
from bullpen.hub.tasks.run_plan import run_directory
from bullpen.model.task import Cancelling, Queued, Task, TaskWorking
from bullpen.model.task_shown import show

QUIET_SECONDS = 15.0
UNTIL_NOW_SECONDS = 2.0  # a program that never stops writing has no now
AGAIN_SECONDS = 0.1
ID = re.compile(r"([0-9]{1,6})\.([0-9]{1,15})\.([0-9]{1,6})")

Mark = tuple[int, int, int]  # run, offset, which of several of that line


def parse_mark(text: str) -> Mark | None:
    """Where a stream broke off; None for what is no id of ours."""
    match = ID.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


async def stream(
    home: Home,
    board: Board,
    task: Task,
    engines: Callable[[Task], str],
    after: Mark,
    *,
    until_now: bool = False,
) -> AsyncIterator[bytes]:
    """Until the task is over. What was said before comes first; `until_now`: only that."""
    number, state = max(1, after[0]), ""
    began = time.monotonic()
    log: LogReader | None = None
    while True:
        live = board.live.get(task.id)
        more = live.news if live else None
        # Looked at before the log: what was written until then is read after it.
        try:
            task = await board.get(task.id)
        except BullpenError:
            return  # no longer kept
        if log is None and task.agent:
            log = _log_of(home, task, number, engines(task))
        is_last = _last_run(task) <= number
        facts = await asyncio.to_thread(_read, log, not is_last or task.is_over)
        for event in (*_changed(task, state), *_events(number, facts, after)):
            yield event
        state = task.state
        is_late = time.monotonic() - began > UNTIL_NOW_SECONDS
        is_enough = until_now and (is_late or not facts)
        if facts and not is_enough:
            continue
        if not is_last and not facts:
            number, log = number + 1, None
        elif task.is_over and not facts:
            yield _event("end", show(task, task.ended or 0.0).model_dump(mode="json"))
            return
        elif is_enough:
            return
        elif not await _wait(more):
            yield b": still here\n\n"


def _changed(task: Task, state: str) -> list[bytes]:
    return [] if task.state == state else [_event("state", _state(task))]


def _state(task: Task) -> dict[str, Any]:
    """With the end of the rate limit that it waits for, if it does."""
    due = task.status.due if isinstance(task.status, Queued) else 0.0
    return {"state": task.state, **({"limited_until": due} if due else {})}


def _read(log: LogReader | None, is_complete: bool) -> list[Fact]:
    if log is None:
        return []
    return log.facts() or (log.last() if is_complete else [])


async def _wait(more: asyncio.Event | None) -> bool:
    """Until it says more; False if that takes long."""
    if more is None:
        await asyncio.sleep(AGAIN_SECONDS)  # it ends in this moment
        return True
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            await more.wait()
    except TimeoutError:
        return False
    return True


def _log_of(home: Home, task: Task, number: int, engine: str) -> LogReader:
    return LogReader(run_directory(home, task, number) / OUTPUT, Reader(get_engine(engine)))


def _events(number: int, facts: list[Fact], after: Mark) -> Iterator[bytes]:
    """Several facts may come from one line: they are numbered. Pieces of a text that is whole by
    now are left out."""
    offset, count = -1, 0
    last_whole = max(
        (n for n, fact in enumerate(facts) if isinstance(fact.line, ModelText)), default=-1
    )
    for n, fact in enumerate(facts):
        count = count + 1 if fact.offset == offset else 0
        offset = fact.offset
        if isinstance(fact.line, Partial) and n < last_whole:
            continue
        shown, mark = describe(fact.line), (number, offset, count)
        if shown is not None and mark > after:
            yield _event(*shown, ".".join(map(str, mark)))


def _last_run(task: Task) -> int:
    if isinstance(task.status, TaskWorking | Cancelling):
        return task.status.run
    return task.runs[-1].number if task.runs else 0


NAMES = {
    TurnBegun: "begun",
    ModelText: "text",
    Partial: "partial",
    ToolUsed: "tool",
    TokensSpent: "usage",
    Retrying: "retry",
    ToolDenied: "denied",
    RunOutcome: "turn",
}
# Of the others everything is shown; what a turn came to is in the task.
TURN = ("fault", "why")


def describe(line: Line | None) -> tuple[str, dict[str, Any]] | None:
    """The name and the data of the event; None for what nobody waits for. Pure."""
    if line is None:
        return None
    fields = asdict(line)
    if isinstance(line, RunOutcome):
        fields = {name: fields[name] for name in TURN}
    return NAMES[type(line)], fields


def _event(name: str, data: dict[str, Any], id: str = "") -> bytes:
    head = f"id: {id}\n" if id else ""
    # ASCII: whatever an agent printed can be sent, and no line break gets in.
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii")

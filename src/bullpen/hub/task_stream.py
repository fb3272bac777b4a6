"""What a task says while it runs, as server-sent events.

Everything comes from the logs of its runs, so a stream that broke off goes on without a gap and
without a repetition, also after a restart of the hub: the id of an event is where it stands there.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from typing import Any

from bullpen.engines import get_engine
from bullpen.engines.base import Reader
from bullpen.engines.lines import Begun, Denied, Line, Outcome, Retrying, Said, Spent, Used
from bullpen.errors import BullpenError
from bullpen.hub.run_plan import run_directory
from bullpen.hub.runs import OUTPUT, Fact, LogReader
from bullpen.hub.task_board import Board
from bullpen.model.task import Cancelling, Task, Working
from bullpen.model.task_shown import show
from bullpen.paths import Home

QUIET_SECONDS = 15.0
AGAIN_SECONDS = 0.1
ID = re.compile(r"([0-9]{1,6})\.([0-9]{1,15})\.([0-9]{1,6})")

Mark = tuple[int, int, int]  # run, offset, which of several of that line


def parse_mark(text: str) -> Mark | None:
    """Where a stream broke off; None for what is no id of ours."""
    found = ID.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


async def stream(
    home: Home, board: Board, task: Task, engines: Callable[[Task], str], after: Mark
) -> AsyncIterator[bytes]:
    """Until the task is over. What was said before comes first."""
    number, state = max(1, after[0]), ""
    log: LogReader | None = None
    while True:
        live = board.live.get(task.id)
        more = live.said if live else None
        # Looked at before the log: what was written until then is read after it.
        try:
            task = await board.get(task.id)
        except BullpenError:
            return  # no longer kept
        if task.state != state:
            state = task.state
            yield _event("state", {"state": state})
        if log is None and task.agent:
            log = _log_of(home, task, number, engines(task))
        is_last = _last_run(task) <= number
        told = await asyncio.to_thread(_read, log, not is_last or task.is_over)
        for event in _events(number, told, after):
            yield event
        if told:
            continue
        if not is_last:
            number, log = number + 1, None
        elif task.is_over:
            yield _event("end", show(task, task.ended or 0.0).model_dump(mode="json"))
            return
        elif not await _wait(more):
            yield b": still here\n\n"


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
    """Several facts may come from one line: they are numbered."""
    place, count = -1, 0
    for fact in facts:
        count = count + 1 if fact.offset == place else 0
        place = fact.offset
        shown, mark = describe(fact.line), (number, place, count)
        if shown is not None and mark > after:
            yield _event(*shown, ".".join(map(str, mark)))


def _last_run(task: Task) -> int:
    if isinstance(task.status, Working | Cancelling):
        return task.status.run
    return task.runs[-1].number if task.runs else 0


NAMES = {
    Begun: "begun",
    Said: "text",
    Used: "tool",
    Spent: "usage",
    Retrying: "retry",
    Denied: "denied",
    Outcome: "turn",
}
# Of the others all is told; what a turn came to is in the task.
TURN = ("fault", "why")


def describe(line: Line | None) -> tuple[str, dict[str, Any]] | None:
    """The name and the data of the event; None for what nobody waits for. Pure."""
    if line is None:
        return None
    fields = asdict(line)
    if isinstance(line, Outcome):
        fields = {name: fields[name] for name in TURN}
    return NAMES[type(line)], fields


def _event(name: str, data: dict[str, Any], id: str = "") -> bytes:
    head = f"id: {id}\n" if id else ""
    # ASCII: whatever an agent printed can be sent, and no line break gets in.
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii")

"""Tasks: given to one agent below `/agents/{name}`, or to whoever is free; the same otherwise.

An agent reads its own; everything else is the owner's.
"""

import asyncio
import contextlib
import math
import time
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import ConfigDict, Field
from starlette.responses import JSONResponse, StreamingResponse

from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub import run_plan, runs
from bullpen.hub.guard import owner_only, owner_or_self
from bullpen.hub.http.agents import Name
from bullpen.hub.http.errors import Problem
from bullpen.hub.http.state import Hub, HubPart
from bullpen.hub.task_driver import DIFF
from bullpen.hub.task_stream import parse_mark, stream
from bullpen.model.state import Value
from bullpen.model.task import (
    STATES,
    TASK_ID,
    Asked,
    Failed,
    Offered,
    Prompt,
    RequestKey,
    Resting,
    Task,
)
from bullpen.model.task_shown import Shown, show
from bullpen.projects import list_projects, load_project

LOG_BYTES = 4 << 20  # of each log that is shown
MOST_WAIT_SECONDS = 3600.0
LIMITED_SECONDS = 60  # if nobody says how long
TEXT_CHARACTERS = 200

TaskId = Annotated[str, Path(pattern=TASK_ID, description="a task's id")]
WaitSeconds = Annotated[
    float | None,
    Query(
        gt=0,
        le=MOST_WAIT_SECONDS,
        allow_inf_nan=False,
        description="answer only when the model has, or after so many seconds",
    ),
]


def whose(request: Request) -> str:
    """The agent that the path names; empty: anybody's."""
    return str(request.path_params.get("name", ""))


Whose = Annotated[str, Depends(whose)]


class Taken(Value):
    """Acknowledged: it is on disk, and will be done."""

    task_id: str
    session_id: str
    status: str = "queued"


class Stands(Value):
    """How a task stands after what was asked."""

    task_id: str
    state: str
    message: str = ""
    output: str | None = None


class More(Value):
    """Another turn. The same `request` asked twice is one turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt
    request: RequestKey | None = None


class Enough(Value):
    """No more turns. The same `request` asked twice is one end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: RequestKey | None = None


class TaskList(Value):
    """What is held now."""

    tasks: tuple[Shown, ...]


class History(Value):
    """One page, newest first."""

    items: tuple[Shown, ...]
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


class Complete(Shown):
    """A task with everything that is kept of it."""

    logs: tuple[RunLog, ...]
    diff: str | None


class ProjectShown(Value):
    """One project file."""

    name: str
    prompt: str
    repo: str | None = None
    workdir: str | None = None
    error: str | None = Field(default=None, description="what is wrong with the file")


# ── giving ──


async def give_task(
    hub: HubPart, name: Name, asked: Asked, wait_seconds: WaitSeconds = None
) -> Any:
    """Give it a task. Acknowledged when it is on disk; refused while it has another one. The same
    `request` twice is one task. With `wait_seconds` the answer is the task when the model has
    answered; a failure of the engine is then an error, too."""
    # Asked again after a lost answer: the task may be there, whatever its agent does now.
    again = await hub.tasks.board.rows.find_request(asked.request) if asked.request else None
    with contextlib.nullcontext() if again else hub.seats.giving(name):
        task = again or await hub.tasks.submit(name, asked)
    return await _taken(hub, task, wait_seconds)


async def offer_task(hub: HubPart, asked: Offered, wait_seconds: WaitSeconds = None) -> Any:
    """A task for any idle agent of that `role` and with those `labels`; higher `priority` first,
    then in order. It waits on disk for as long as nobody is free."""
    task = await hub.tasks.offer(asked)
    return await _taken(hub, task, wait_seconds)


async def _taken(hub: Hub, task: Task, seconds: float | None) -> Any:
    if seconds is not None:
        found = await _waited(hub, task, seconds)
        if found is not None:
            return JSONResponse(_shown(hub, found).model_dump(mode="json"), 200)
    return Taken(task_id=task.id, session_id=task.session_id)


async def _waited(hub: Hub, task: Task, seconds: float) -> Task | None:
    """The task when its turn is over; None if that takes longer."""
    try:
        async with asyncio.timeout(seconds):
            found = await hub.tasks.board.wait(task.id, _rests)
    except TimeoutError:
        return None
    if isinstance(found.status, Failed):
        raise _failed(found, found.status, hub.tasks.engine_of(found))
    return found


def _rests(task: Task) -> bool:
    return isinstance(task.status, Resting)


def _failed(task: Task, status: Failed, engine: str) -> BullpenError:
    kind = status.error.type
    details: dict[str, object] = {"task_id": task.id, "type": kind}
    match kind:
        case "rate_limit":
            now = time.time()
            over = get_engine(engine).find_reset(status.error.message, now)
            seconds = max(1, math.ceil(over - now)) if over else LIMITED_SECONDS
            details |= {"error": "rate_limited", "retry_after": seconds}
        case "timeout":
            details["error"] = "timeout"
        case _:
            # What was tried again in vain may succeed later; a bad key or a full budget does not.
            is_retryable = bool(task.runs) and task.runs[-1].is_retryable
            details |= {"error": "claude_error", "retryable": is_retryable}
    message = f"task {task.id} failed: {status.error.message}"
    return BullpenError(message, kind=Kind.COMMAND_FAILED, details=details)


# ── looking and steering ──


async def get_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """One task, over or not. What is not known is null."""
    return _shown(hub, await hub.tasks.board.get(id, agent))


async def cancel_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """Cancel it; answered at once. What runs gets SIGTERM, after ten seconds SIGKILL; what it has
    said until then is kept."""
    task = await hub.tasks.cancel(id, agent)
    message = "its run is told to end" if task.state == "cancelling" else "it is over"
    return Stands(task_id=task.id, state=task.state, message=message)


async def continue_task(
    hub: HubPart, agent: Whose, id: TaskId, asked: More, wait_seconds: WaitSeconds = None
) -> Any:
    """Another turn of a task that was kept open and rests."""
    task = await hub.tasks.continue_(id, asked.prompt, asked.request or "", agent)
    if wait_seconds is not None:
        task = await _waited(hub, task, wait_seconds) or task
    return Stands(task_id=task.id, state=task.state, message="", output=task.output)


async def end_task(hub: HubPart, agent: Whose, id: TaskId, asked: Enough | None = None) -> Any:
    """No more turns: a task that rests is completed."""
    request = asked.request if asked else None
    task = await hub.tasks.end(id, request or "", agent)
    return Stands(task_id=task.id, state=task.state, message="it is over", output=task.output)


async def stream_task(
    hub: HubPart,
    agent: Whose,
    id: TaskId,
    last_event_id: Annotated[
        str | None, Header(max_length=40, description="goes on where a stream broke off")
    ] = None,
) -> StreamingResponse:
    """What it says and does, as it happens, from its beginning: `state`, `begun`, `text`, `tool`,
    `usage`, `retry`, `denied`, `turn`, at last `end` with the whole task."""
    task = await hub.tasks.board.get(id, agent)
    after = (0, 0, -1)
    if last_event_id:
        found = parse_mark(last_event_id)
        if found is None:
            raise BullpenError("Last-Event-ID is none of this stream")
        after = found
    return StreamingResponse(
        stream(hub.home, hub.tasks.board, task, hub.tasks.engine_of, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def debug_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """The raw output of its runs, kept as long as the task is."""
    task = await hub.tasks.board.get(id, agent)
    return Debug(task_id=task.id, runs=await asyncio.to_thread(_logs, hub, task))


async def list_tasks(hub: HubPart, agent: Whose) -> Any:
    """Those that are not over: queued, working, resting, being cancelled."""
    return TaskList(tasks=tuple(_shown(hub, task) for task in hub.tasks.open_tasks(agent)))


State = Annotated[
    str | None, Query(pattern=f"^({'|'.join(STATES)})$", description="only tasks in this state")
]


async def list_history(
    hub: HubPart,
    agent: Whose,
    page: Annotated[int, Query(ge=1, le=1_000_000, description="from 1 on")] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    state: State = None,
    session: Annotated[str | None, Query(max_length=40, description="of this session")] = None,
    text: Annotated[
        str | None, Query(max_length=TEXT_CHARACTERS, description="in its prompt or output")
    ] = None,
) -> Any:
    """All tasks that are kept, newest first."""
    found, total = await hub.tasks.board.rows.page(
        agent, page, limit, state=state or "", session=session or "", text=text or ""
    )
    items = tuple(_shown(hub, task) for task in found)
    return History(items=items, page=page, limit=limit, total=total)


async def get_history(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """One task with its logs, commits and diff."""
    task = await hub.tasks.board.get(id, agent)
    logs, diff = await asyncio.to_thread(lambda: (_logs(hub, task), _diff(hub, task)))
    return Complete(**dict(_shown(hub, task)), logs=logs, diff=diff)


async def list_project_files(hub: HubPart) -> Any:
    """The projects that a task can name."""
    return await asyncio.to_thread(_projects, hub)


def _projects(hub: Hub) -> list[ProjectShown]:
    found = []
    for name in list_projects(hub.home):
        try:
            project = load_project(hub.home, name)
        except BullpenError as error:
            found.append(ProjectShown(name=name, prompt="", error=error.message))
        else:
            found.append(ProjectShown(**project.model_dump()))
    return found


def _shown(hub: Hub, task: Task) -> Shown:
    return show(task, time.time(), hub.tasks.progress(task.id))


def _logs(hub: Hub, task: Task) -> tuple[RunLog, ...]:
    if not task.agent:
        return ()
    place = run_plan.task_directory(hub.home, task.agent, task.id)
    numbers = sorted(int(path.name) for path in place.glob("[0-9]*") if path.name.isdecimal())
    return tuple(_log(place / str(number), number) for number in numbers)


def _log(place: FilePath, number: int) -> RunLog:
    return RunLog(
        number=number,
        stdout=runs.tail(place / runs.OUTPUT, LOG_BYTES),
        stderr=runs.tail(place / runs.ERRORS, LOG_BYTES),
    )


def _diff(hub: Hub, task: Task) -> str | None:
    if not task.agent or not task.base:
        return None
    return runs.tail(run_plan.task_directory(hub.home, task.agent, task.id) / DIFF, LOG_BYTES)


# ── the routes: the same below an agent's name and without ──

EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "for `Last-Event-ID`"},
        "event": {"type": "string", "examples": ["text"]},
        "data": {"type": "string", "description": "JSON"},
    },
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": EVENT}},
        "description": "server-sent events until the task is over",
    }
}
FAILURES: dict[int | str, dict[str, Any]] = {
    429: {"model": Problem, "description": "with `wait_seconds`: `rate_limited`, `Retry-After`"},
    502: {"model": Problem, "description": "with `wait_seconds`: `claude_error`"},
    504: {
        "model": Problem,
        "description": "with `wait_seconds`: `timeout`, it took too long",
    },
}
WAITED = {200: {"model": Shown, "description": "with `wait_seconds`: the task"}, **FAILURES}
LOOK, STEER = Depends(owner_or_self), Depends(owner_only)
BOTH: tuple[tuple[str, str, Any, Any, Any], ...] = (
    ("GET", "/tasks", list_tasks, TaskList, LOOK),
    ("GET", "/task/{id}", get_task, Shown, LOOK),
    ("POST", "/task/{id}/cancel", cancel_task, Stands, STEER),
    ("POST", "/task/{id}/continue", continue_task, Stands, STEER),
    ("POST", "/task/{id}/end", end_task, Stands, STEER),
    ("GET", "/task/{id}/debug", debug_task, Debug, LOOK),
    ("GET", "/history", list_history, History, LOOK),
    ("GET", "/history/{id}", get_history, Complete, LOOK),
)


def _named(hub: HubPart, name: Name) -> None:
    """Declares the part of the path, which `whose` reads; raises if there is no such agent."""
    hub.registry.get(name)


router = APIRouter(tags=["tasks"])
for _prefix, _more in (("", ()), ("/agents/{name}", (Depends(_named),))):
    for _method, _path, _function, _model, _rights in BOTH:
        # Without a name it is everybody's, and so the owner's alone.
        router.add_api_route(
            _prefix + _path,
            _function,
            methods=[_method],
            response_model=_model,
            responses=FAILURES if _function is continue_task else None,
            dependencies=[_rights if _more else STEER, *_more],
        )
    router.add_api_route(
        f"{_prefix}/task/{{id}}/events",
        stream_task,
        methods=["GET"],
        response_class=StreamingResponse,
        responses=EVENTS,
        dependencies=[LOOK if _more else STEER, *_more],
    )
for _path, _giving in (("/agents/{name}/task", give_task), ("/tasks", offer_task)):
    router.add_api_route(
        _path,
        _giving,
        methods=["POST"],
        status_code=201,
        response_model=Taken,
        responses=WAITED,
        dependencies=[STEER],
    )
router.add_api_route(
    "/projects",
    list_project_files,
    methods=["GET"],
    response_model=list[ProjectShown],
    dependencies=[STEER],
)

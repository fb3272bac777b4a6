"""Tasks: given to one agent below `/agents/{name}`, or to whoever is free; the same otherwise.

An agent reads its own; a director gives tasks, and reads, steers and cancels those; everything else
is the owner's.
"""

import asyncio
import contextlib
import math
import time
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import ConfigDict
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.home.projects import list_projects, load_project
from bullpen.hub.http.errors import Problem
from bullpen.hub.http.guard import actor_of, owner_only, owner_or_director, owner_or_self
from bullpen.hub.http.parameters import TEXT, AsText, Colour, Columns, Iso, Name, as_json
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.hub.render.tasks import history_text, open_text
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan, task_changes
from bullpen.hub.tasks.board import no_task
from bullpen.hub.tasks.brought_over import list_missing
from bullpen.hub.tasks.stream import parse_mark, stream
from bullpen.model.task import (
    STATES,
    Failed,
    Prompt,
    Queued,
    QueuedTaskRequest,
    RequestKey,
    Resting,
    Task,
    TaskRequest,
)
from bullpen.model.task_shown import (
    Complete,
    Debug,
    History,
    ProjectShown,
    RunLog,
    TaskAccepted,
    TaskList,
    TaskMoved,
    TaskShown,
    as_row,
    show,
)
from bullpen.model.value import Value

LOG_BYTES = 4 << 20  # of each log that is shown
MOST_WAIT_SECONDS = 3600.0
LIMITED_SECONDS = 60  # if nobody says how long
TEXT_CHARACTERS = 200

TaskId = Annotated[str, Path(description="a task's id")]
WaitSeconds = Annotated[
    float | None,
    Query(
        gt=0,
        le=MOST_WAIT_SECONDS,
        allow_inf_nan=False,
        description="answer only when the model has, or after so many seconds",
    ),
]


async def whose(request: Request) -> str:
    """The agent that the path names; empty: anybody's."""
    return str(request.path_params.get("name", ""))


async def giver(request: Request) -> str:
    """The director that asks; empty: anybody else."""
    return actor_of(request).director


async def given_by_asker(hub: HubPart, request: Request) -> None:
    """A director gets at the tasks that it gave; of others it learns not even that they are
    there."""
    director, id = actor_of(request).director, str(request.path_params.get("id", ""))
    if director and id and (await hub.tasks.board.get(id)).director != director:
        raise no_task(id)


Whose = Annotated[str, Depends(whose)]
Giver = Annotated[str, Depends(giver)]


class ContinueBody(Value):
    """Another turn. The same `request` asked twice is one turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt
    request: RequestKey | None = None


class EndBody(Value):
    """No more turns. The same `request` asked twice is one end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: RequestKey | None = None


# ── giving ──


async def give_task(
    hub: HubPart, director: Giver, name: Name, body: TaskRequest, wait_seconds: WaitSeconds = None
) -> Any:
    """Give it a task. Acknowledged when it is on disk; refused while it has another one. The same
    `request` twice is one task. With `wait_seconds` the answer is the task when the model has
    answered; a failure of the engine is then an error, too."""
    # Asked again after a lost answer: the task may be there, whatever its agent does now.
    again = await hub.tasks.find_again(body, director)
    with contextlib.nullcontext() if again else hub.task_agents.giving(name):
        task = again or await hub.tasks.submit(name, body, director)
    return await _taken(hub, task, wait_seconds)


async def offer_task(
    hub: HubPart, director: Giver, body: QueuedTaskRequest, wait_seconds: WaitSeconds = None
) -> Any:
    """A task for any idle agent of that `role` and with those `labels`, or for `agent` when it is
    free; higher `priority` first, then in order. It waits on disk for as long as nobody is free.
    With `fleet`: of all machines; what is committed in `repo` goes there, and comes back as branch
    `worktree`."""
    if body.fleet:
        hub.fleet.check_task(body)
    task = await hub.tasks.offer(body, director)
    return await _taken(hub, task, wait_seconds)


async def _taken(hub: Hub, task: Task, seconds: float | None) -> Any:
    if seconds is not None:
        waited = await _waited(hub, task, seconds)
        if waited is not None:
            return JSONResponse(_shown(hub, waited).model_dump(mode="json"), 200)
    return TaskAccepted(task_id=task.id, session_id=task.session_id)


async def _waited(hub: Hub, task: Task, seconds: float) -> Task | None:
    """The task when its turn is over; None if that takes longer."""
    try:
        async with asyncio.timeout(seconds):
            task = await hub.tasks.board.wait(task.id, _is_answered)
    except TimeoutError:
        return None
    if isinstance(task.status, Queued):
        raise _limited(task, task.status.due)
    if isinstance(task.status, Failed):
        raise _failed(task, task.status, hub.tasks.engine_of(task))
    return task


def _is_answered(task: Task) -> bool:
    """Its turn is over, or waits for a rate limit to be reset."""
    return isinstance(task.status, Resting) or (
        isinstance(task.status, Queued) and bool(task.status.due)
    )


def _limited(task: Task, until: float) -> BullpenError:
    seconds = max(1, math.ceil(until - time.time()))
    return BullpenError(
        f"task {task.id} met a rate limit: it waits, and goes on by itself in {seconds} s",
        hint=f"bullpen task show {task.id}",
        kind=Kind.COMMAND_FAILED,
        details={"error": "rate_limited", "task_id": task.id, "retry_after": seconds},
    )


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
            details |= {"error": "engine_error", "retryable": is_retryable}
    message = f"task {task.id} failed: {status.error.message}"
    return BullpenError(message, kind=Kind.COMMAND_FAILED, details=details)


# ── looking and steering ──


async def get_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """One task, over or not. What is not known is null."""
    return _shown(hub, await hub.tasks.board.get(id, agent))


async def get_requested_task(
    hub: HubPart,
    director: Giver,
    request: Annotated[RequestKey, Path(description="what its giver sent as `request`")],
) -> Any:
    """The task that was given with that `request`: whether an answer that was lost had one."""
    task = await hub.tasks.board.rows.find_request(request)
    if task is None or (director and task.director != director):
        raise BullpenError("no task was given with that request", kind=Kind.NOT_FOUND)
    return _shown(hub, task)


async def cancel_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """Cancel it; answered at once. What runs gets SIGTERM, after ten seconds SIGKILL; what it has
    said until then is kept."""
    task = await hub.tasks.cancel(id, agent)
    message = "its run is told to end" if task.state == "cancelling" else "it is over"
    return TaskMoved(task_id=task.id, state=task.state, message=message)


async def continue_task(
    hub: HubPart, agent: Whose, id: TaskId, body: ContinueBody, wait_seconds: WaitSeconds = None
) -> Any:
    """Another turn of a task that was kept open and rests."""
    task = await hub.tasks.continue_(id, body.prompt, body.request or "", agent)
    if wait_seconds is not None:
        task = await _waited(hub, task, wait_seconds) or task
    return TaskMoved(task_id=task.id, state=task.state, message="", output=task.output)


async def end_task(hub: HubPart, agent: Whose, id: TaskId, body: EndBody | None = None) -> Any:
    """No more turns: a task that rests is completed."""
    request = body.request if body else None
    task = await hub.tasks.end(id, request or "", agent)
    return TaskMoved(task_id=task.id, state=task.state, message="it is over", output=task.output)


async def stream_task(
    hub: HubPart,
    agent: Whose,
    id: TaskId,
    last_event_id: Annotated[
        str | None, Header(max_length=40, description="goes on where a stream broke off")
    ] = None,
    until_now: Annotated[
        bool, Query(description="end when all is told that was said so far; then ask again")
    ] = False,
) -> StreamingResponse:
    """What it says and does, as it happens, from its beginning: `state`, `begun`, `text`, `tool`,
    `usage`, `retry`, `denied`, `turn`, at last `end` with the whole task. `partial` is a piece of a
    text that is being written (`is_first`: it begins one); `text` then has the whole."""
    task = await hub.tasks.board.get(id, agent)
    after = (0, 0, -1)
    if last_event_id:
        mark = parse_mark(last_event_id)
        if mark is None:
            raise BullpenError("Last-Event-ID is none of this stream")
        after = mark
    return StreamingResponse(
        stream(hub.home, hub.tasks.board, task, hub.tasks.engine_of, after, until_now=until_now),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def debug_task(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """The raw output of its runs, kept as long as the task is."""
    task = await hub.tasks.board.get(id, agent)
    return Debug(task_id=task.id, runs=await asyncio.to_thread(_logs, hub, task))


async def list_tasks(
    hub: HubPart,
    agent: Whose,
    director: Giver,
    request: Request,
    text: AsText = False,
    columns: Columns = 0,
    colour: Colour = False,
    iso: Iso = False,
) -> Any:
    """The tasks that are not over: queued, working, resting, being cancelled."""
    tasks = tuple(_shown(hub, task) for task in hub.tasks.open_tasks(agent, director))
    if text:
        lines = open_text(
            tasks, _as_named(hub, request, agent), time.time(), columns=columns, colour=colour
        )
        return PlainTextResponse(lines)
    return as_json(TaskList(tasks=tasks), iso)


def _as_named(hub: Hub, request: Request, agent: str) -> str:
    """As commands of the machine that asks name it."""
    is_elsewhere = bool(agent and actor_of(request).host)
    return f"{hub.fleet.name}/{agent}" if is_elsewhere else agent


State = Annotated[
    str | None, Query(pattern=f"^({'|'.join(STATES)})$", description="only tasks in this state")
]


async def list_history(
    hub: HubPart,
    agent: Whose,
    director: Giver,
    request: Request,
    page: Annotated[int, Query(ge=1, le=1_000_000, description="from 1 on")] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    state: State = None,
    session: Annotated[str | None, Query(max_length=40, description="of this session")] = None,
    text: Annotated[
        str | None, Query(max_length=TEXT_CHARACTERS, description="in its prompt or output")
    ] = None,
    lines: AsText = False,
    columns: Columns = 0,
    colour: Colour = False,
) -> Any:
    """All tasks that are kept, newest first. Of prompts and outputs the beginnings."""
    tasks, total = await hub.tasks.board.rows.page(
        agent,
        page,
        limit,
        state=state or "",
        session=session or "",
        text=text or "",
        director=director,
    )
    items = tuple(as_row(_shown(hub, task)) for task in tasks)
    history = History(items=items, page=page, limit=limit, total=total)
    if lines:
        given = {"state": state or "", "session": session or "", "text": text or ""}
        filters = {key: value for key, value in given.items() if value}
        return PlainTextResponse(
            history_text(
                history, _as_named(hub, request, agent), filters, columns=columns, colour=colour
            )
        )
    return history


async def get_history(hub: HubPart, agent: Whose, id: TaskId) -> Any:
    """One task with its logs, and what it committed and what not."""
    task = await hub.tasks.board.get(id, agent)
    logs = await asyncio.to_thread(_logs, hub, task)
    changes, diff = await asyncio.to_thread(task_changes.find, hub.home, task)
    missing = await _missing(hub, task)
    shown = dict(_shown(hub, task))
    return Complete(**shown, logs=logs, changes=changes, diff=diff, not_brought_over=missing)


async def _missing(hub: Hub, task: Task) -> tuple[str, ...] | None:
    if not task.is_over:
        return None
    session = await hub.tasks.board.rows.find_session(task.session_id)
    if session is None:
        return ()
    return await list_missing(hub.private_gits, hub.registry.find(task.agent), session)


async def list_project_files(hub: HubPart) -> Any:
    """The projects that a task can name."""
    return await asyncio.to_thread(_projects, hub)


def _projects(hub: Hub) -> list[ProjectShown]:
    projects = []
    for name in list_projects(hub.home):
        try:
            project = load_project(hub.home, name)
        except BullpenError as error:
            projects.append(ProjectShown(name=name, prompt="", error=error.message))
        else:
            projects.append(ProjectShown(**project.model_dump()))
    return projects


def _shown(hub: Hub, task: Task) -> TaskShown:
    return show(task, time.time(), hub.tasks.progress(task.id))


def _logs(hub: Hub, task: Task) -> tuple[RunLog, ...]:
    if not task.agent:
        return ()
    directory = run_plan.task_directory(hub.home, task.agent, task.id)
    numbers = sorted(int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal())
    return tuple(_log(directory / str(number), number) for number in numbers)


def _log(directory: FilePath, number: int) -> RunLog:
    return RunLog(
        number=number,
        stdout=task_run.tail(directory / task_run.OUTPUT, LOG_BYTES),
        stderr=task_run.tail(directory / task_run.ERRORS, LOG_BYTES),
    )


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
    502: {"model": Problem, "description": "with `wait_seconds`: `engine_error`"},
    504: {
        "model": Problem,
        "description": "with `wait_seconds`: `timeout`, it took too long",
    },
}
WAITED = {200: {"model": TaskShown, "description": "with `wait_seconds`: the task"}, **FAILURES}
OWNER_OR_SELF, OWNER_ONLY = Depends(owner_or_self), Depends(owner_only)
OWNER_OR_DIRECTOR, GIVEN_BY_ASKER = Depends(owner_or_director), Depends(given_by_asker)
BOTH: tuple[tuple[str, str, Any, Any, Any], ...] = (
    ("GET", "/tasks", list_tasks, TaskList, OWNER_OR_SELF),
    ("GET", "/task/{id}", get_task, TaskShown, OWNER_OR_SELF),
    ("POST", "/task/{id}/cancel", cancel_task, TaskMoved, OWNER_ONLY),
    ("POST", "/task/{id}/continue", continue_task, TaskMoved, OWNER_ONLY),
    ("POST", "/task/{id}/end", end_task, TaskMoved, OWNER_ONLY),
    ("GET", "/task/{id}/debug", debug_task, Debug, OWNER_OR_SELF),
    ("GET", "/history", list_history, History, OWNER_OR_SELF),
    ("GET", "/history/{id}", get_history, Complete, OWNER_OR_SELF),
)


RESPONSES: dict[Any, dict[int | str, dict[str, Any]]] = {
    continue_task: FAILURES,
    list_tasks: TEXT,
    list_history: TEXT,
}


async def _named(hub: HubPart, name: Name) -> None:
    """Declares the part of the path, which `whose` reads; raises if there is no such agent."""
    hub.registry.get(name)


router = APIRouter(tags=["tasks"])
for _prefix, _more in (("", ()), ("/agents/{name}", (Depends(_named),))):
    for _method, _path, _function, _model, _rights in BOTH:
        # Without a name it is everybody's: the owner's, and what a director gave is its own.
        router.add_api_route(
            _prefix + _path,
            _function,
            methods=[_method],
            response_model=_model,
            responses=RESPONSES.get(_function),
            dependencies=[_rights, *_more] if _more else [OWNER_OR_DIRECTOR, GIVEN_BY_ASKER],
        )
    router.add_api_route(
        f"{_prefix}/task/{{id}}/events",
        stream_task,
        methods=["GET"],
        response_class=StreamingResponse,
        responses=EVENTS,
        dependencies=[OWNER_OR_SELF, *_more] if _more else [OWNER_OR_DIRECTOR, GIVEN_BY_ASKER],
    )
for _path, _giving in (("/agents/{name}/task", give_task), ("/tasks", offer_task)):
    router.add_api_route(
        _path,
        _giving,
        methods=["POST"],
        status_code=201,
        response_model=TaskAccepted,
        responses=WAITED,
        dependencies=[OWNER_OR_DIRECTOR],
    )
router.add_api_route(
    "/requests/{request}",
    get_requested_task,
    methods=["GET"],
    response_model=TaskShown,
    dependencies=[OWNER_OR_DIRECTOR],
)
router.add_api_route(
    "/projects",
    list_project_files,
    methods=["GET"],
    response_model=list[ProjectShown],
    dependencies=[OWNER_ONLY],
)

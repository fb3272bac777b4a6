"""Calls of `/task`, `/tasks`, `/history` and `/projects`. No I/O.

Those that take `agent` go to that agent's own routes, else to everybody's, which are the owner's.
"""

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from bullpen.client.call import (
    Call,
    Either,
    Model,
    Models,
    given,
    path,
)
from bullpen.client.streams import EventStream, ServerSent
from bullpen.client.task_events import TaskEvent, read_event

if TYPE_CHECKING:
    from bullpen.model.task_shown import (
        Complete,
        Debug,
        History,
        ProjectShown,
        TaskAccepted,
        TaskList,
        TaskMoved,
        TaskShown,
    )


# ── giving ──


class TaskFields(TypedDict, total=False):
    """How a task is to be done; what is missing or None is the agent's affair."""

    model: str | None
    timeout_seconds: float | None
    session_id: str | None
    keep_open: bool | None
    project: str | Mapping[str, str] | None
    workdir: str | None
    repo: str | None
    worktree: str | None
    branch: str | None
    budget: Mapping[str, float] | None
    env: Mapping[str, str] | None
    sandboxed: Literal["required"] | None


def give_task(
    agent: str,
    prompt: str,
    *,
    request: str | None = None,
    wait_seconds: float | None = None,
    **fields: Unpack[TaskFields],
) -> "Call[TaskAccepted | TaskShown]":
    """Give a task to an agent. Acknowledged when it is on disk; with `wait_seconds` the answer is
    the task when the model has answered. The same `request` twice is one task."""
    body = given(prompt=prompt, **fields)
    return _give(path("agents", agent, "task"), body, request, wait_seconds)


def offer_task(
    prompt: str,
    *,
    agent: str | None = None,
    role: str | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    fleet: bool | None = None,
    request: str | None = None,
    wait_seconds: float | None = None,
    **fields: Unpack[TaskFields],
) -> "Call[TaskAccepted | TaskShown]":
    """A task for any idle agent of that `role` and with those `labels`, of all machines with
    `fleet`, or for `agent` when it is free; else as `give_task`."""
    whom = {"agent": agent, "role": role, "labels": labels, "priority": priority, "fleet": fleet}
    body = given(prompt=prompt, **whom, **fields)
    return _give(path("tasks"), body, request, wait_seconds)


def _give(
    target: str, body: dict[str, object], request: str | None, wait_seconds: float | None
) -> "Call[TaskAccepted | TaskShown]":
    return Call(
        "POST",
        target,
        {"wait_seconds": wait_seconds},
        {**body, "request": request or uuid.uuid4().hex},
        again=True,
        wait_seconds=wait_seconds or 0.0,
        read=Either("prompt", Model("task_shown.TaskShown"), Model("task_shown.TaskAccepted")),
    )


# ── steering ──


def cancel_task(id: str, agent: str = "") -> "Call[TaskMoved]":
    """Cancel it; answered at once."""
    return Call(
        "POST", _path(agent, "task", id, "cancel"), again=True, read=Model("task_shown.TaskMoved")
    )


def continue_task(
    id: str,
    prompt: str,
    agent: str = "",
    *,
    request: str | None = None,
    wait_seconds: float | None = None,
) -> "Call[TaskMoved]":
    """Another turn of a task that was kept open and rests. The same `request` is one turn."""
    return Call(
        "POST",
        _path(agent, "task", id, "continue"),
        {"wait_seconds": wait_seconds},
        {"prompt": prompt, "request": request or uuid.uuid4().hex},
        again=True,
        wait_seconds=wait_seconds or 0.0,
        read=Model("task_shown.TaskMoved"),
    )


def end_task(id: str, agent: str = "", *, request: str | None = None) -> "Call[TaskMoved]":
    """No more turns: a task that rests is completed. The same `request` is one end."""
    return Call(
        "POST",
        _path(agent, "task", id, "end"),
        body={"request": request or uuid.uuid4().hex},
        again=True,
        read=Model("task_shown.TaskMoved"),
    )


# ── looking ──


def get_task(id: str, agent: str = "") -> "Call[TaskShown]":
    """One task, over or not."""
    return Call("GET", _path(agent, "task", id), read=Model("task_shown.TaskShown"))


def get_requested_task(request: str) -> "Call[TaskShown]":
    """The task that was given with that `request`."""
    return Call("GET", path("requests", request), read=Model("task_shown.TaskShown"))


def stream_task(
    id: str, agent: str = "", *, last_event_id: str = "", until_now: bool = False
) -> EventStream[TaskEvent]:
    """What it says and does, as it happens, from its beginning or after a `mark`; with `until_now`
    what it has said so far. Starts no hub."""

    def read(sent: ServerSent) -> TaskEvent:
        return read_event(sent.name, sent.data, sent.id)

    return EventStream(
        "GET",
        _path(agent, "task", id, "events"),
        {"until_now": 1 if until_now else None},
        starts_hub=False,
        headers={"last-event-id": last_event_id} if last_event_id else {},
        read=read,
        last="end",
    )


def debug_task(id: str, agent: str = "") -> "Call[Debug]":
    """The raw output of its runs."""
    return Call("GET", _path(agent, "task", id, "debug"), read=Model("task_shown.Debug"))


def list_tasks(agent: str = "") -> "Call[TaskList]":
    """Those that are not over: queued, working, resting, being cancelled."""
    return Call("GET", _path(agent, "tasks"), read=Model("task_shown.TaskList"))


def list_history(
    agent: str = "",
    *,
    page: int | None = None,
    limit: int | None = None,
    state: str | None = None,
    session: str | None = None,
    text: str | None = None,
) -> "Call[History]":
    """All tasks that are kept, newest first, a page of them."""
    query = {"page": page, "limit": limit, "state": state, "session": session, "text": text}
    return Call("GET", _path(agent, "history"), query, read=Model("task_shown.History"))


def get_history(id: str, agent: str = "") -> "Call[Complete]":
    """One task with its logs, commits and diff."""
    return Call("GET", _path(agent, "history", id), read=Model("task_shown.Complete"))


def list_project_files() -> "Call[list[ProjectShown]]":
    """The projects that a task can name."""
    return Call("GET", path("projects"), read=Models("task_shown.ProjectShown"))


def _path(agent: str, *parts: str) -> str:
    return path("agents", agent, *parts) if agent else path(*parts)

"""Calls of directors' own routes, as values. No I/O.

Run by `component/ask`, over the director's socket in the home, for `cli/directors`,
`cli/commands/schedule` and `web/directors`. What a director tells of its work has keys of its own
beside these.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict

from bullpen.client.call import Call, Json, path
from bullpen.directors.failures import Trouble
from bullpen.directors.history import HistoryPage
from bullpen.model.value import Value


class DirectorFields(Value):
    """Something that a director tells, with all the keys that it has."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def to_json(self) -> dict[str, Any]:
        """As JSON, no key more than there was."""
        return self.model_dump(mode="json", exclude_unset=True)


class DirectorTask(DirectorFields):
    """Something that it holds and that is not over."""

    id: str
    state: str
    task_id: str | None = None
    agent: str | None = None


class Goal(DirectorTask):
    """A goal, over or not."""

    goal: str
    reason: str | None = None
    report: str | None = None
    branch: str | None = None
    commit_count: int = 0


class SubjectTrouble(Trouble):
    """What holds it up, and of which subject."""

    about: str


class DirectorTasks(Value):
    """What `/tasks` tells."""

    tasks: tuple[DirectorTask, ...]
    problems: tuple[SubjectTrouble, ...]


class DirectorAgents(Value):
    """What `/agents` tells."""

    agents: tuple[DirectorFields, ...]
    last_poll: float | None


class Taken(Value):
    """A goal that is on disk."""

    task_id: str


class Moved(DirectorFields):
    """What has become of a goal or an occurrence."""

    id: str


class LastRun(DirectorFields):
    """What came of an occurrence."""

    state: str
    reason: str = ""


class ScheduledEntry(DirectorFields):
    """An entry of a schedule, with the keys of its file."""

    name: str
    timezone: str
    next_runs: tuple[float, ...]
    last: LastRun | None
    waits_for: str | None = None


class Schedule(Value):
    """What `/schedule` tells; `problem`: why the file as it is now does not count."""

    schedule: tuple[ScheduledEntry, ...]
    problem: str | None


class Removed(Value):
    """The entry's name."""

    removed: str


def list_tasks() -> Call[DirectorTasks]:
    """What it holds, and what holds it up."""
    return Call("GET", path("tasks"), read=DirectorTasks.model_validate_json)


def list_history(page: int | None = None, limit: int | None = None) -> Call[HistoryPage]:
    """What is over, newest first."""
    query = {"page": page, "limit": limit}
    return Call("GET", path("history"), query, read=HistoryPage.model_validate_json)


def list_agents() -> Call[DirectorAgents]:
    """Who works for it."""
    return Call("GET", path("agents"), read=DirectorAgents.model_validate_json)


# ── of type claude ──


def give_goal(prompt: str, request: str | None = None) -> Call[Taken]:
    """On disk when it is answered; the same `request` twice is one goal, and so is the same
    value."""
    body = {"prompt": prompt, "request": request or uuid.uuid4().hex}
    return Call("POST", path("task"), body=body, again=True, read=Taken.model_validate_json)


def get_goal(id: str) -> Call[Goal]:
    """How a goal stands."""
    return Call("GET", path("task", id), read=Goal.model_validate_json)


def cancel_goal(id: str) -> Call[Moved]:
    """End a goal; one that is over stays as it is."""
    return Call("POST", path("task", id, "cancel"), again=True, read=Moved.model_validate_json)


# ── of type scheduler ──


def get_schedule() -> Call[Schedule]:
    """The entries that count, with their next runs and what came of the last."""
    return Call("GET", path("schedule"), read=Schedule.model_validate_json)


def put_schedule(entries: Sequence[Json]) -> Call[Schedule]:
    """All entries anew."""
    body = {"schedule": [*entries]}
    return Call("PUT", path("schedule"), body=body, read=Schedule.model_validate_json)


def add_entry(entry: Json) -> Call[ScheduledEntry]:
    """One entry more."""
    target = path("schedule", "task")
    return Call("POST", target, body=entry, read=ScheduledEntry.model_validate_json)


def remove_entry(name: str) -> Call[Removed]:
    """One entry less."""
    target = path("schedule", "task", name)
    return Call("DELETE", target, read=Removed.model_validate_json)


def run_entry(name: str) -> Call[Moved]:
    """Now, once."""
    return Call("POST", path("schedule", "task", name, "run"), read=Moved.model_validate_json)

"""Ids of tasks as commands take them: whole, or the beginning of one; and whose tasks are meant."""

import os
import re

import click

from bullpen.client import tasks
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home

PAGE, PAGES = 100, 100  # that a shortened id is looked for in
WHOLE = re.compile(r"t-[0-9a-f]{12}")
PREFIX = re.compile(r"(?:t-)?([0-9a-f]{1,12})")


def whose(agent: str | None = None) -> str:
    """The agent whose tasks are meant; empty: everybody's. An agent sees its own."""
    return agent or os.environ.get("BULLPEN_ACTOR", "")


def complete_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Tasks for the shell, the newest first; starts no hub."""
    try:
        hub = Hub(current_home(), start=False)
        known = hub.do(tasks.list_history(whose(), limit=PAGE)).items
    except (BullpenError, OSError):
        return []
    return [task.task_id for task in known if task.task_id.startswith(incomplete)]


def complete_open_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The same of those that are not over."""
    try:
        hub = Hub(current_home(), start=False)
        open_tasks = hub.do(tasks.list_tasks(whose()).unchecked()).tasks
    except (BullpenError, OSError):
        return []
    return [task.task_id for task in open_tasks if task.task_id.startswith(incomplete)]


def find_id(hub: Hub, text: str) -> str:
    """The whole id of a task that is meant by the beginning of one."""
    if WHOLE.fullmatch(text):
        return text
    match = PREFIX.fullmatch(text)
    if match is None:
        raise BullpenError(f"{text!r} is no id of a task", hint="bullpen tasks · bullpen history")
    wanted = f"t-{match[1]}"
    if WHOLE.fullmatch(wanted):
        return wanted
    ids = [id for id in _all_ids(hub) if id.startswith(wanted)]
    if not ids:
        raise BullpenError(
            f"no task {wanted}…", hint="bullpen tasks · bullpen history", kind=Kind.NOT_FOUND
        )
    if len(ids) > 1:
        shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
        raise BullpenError(f"{wanted} is the beginning of {len(ids)} tasks: {shown}")
    return ids[0]


def _all_ids(hub: Hub) -> list[str]:
    ids: dict[str, None] = {}  # a page may shift while it is read
    for page in range(1, PAGES + 1):
        history = hub.do(tasks.list_history(whose(), page=page, limit=PAGE))
        ids.update(dict.fromkeys(task.task_id for task in history.items))
        if page * PAGE >= history.total:
            break
    return list(ids)

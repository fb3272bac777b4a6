"""What a task changed in a git checkout: looked at before it begins and after each run, and kept in
a file of its directory.

Called by `driver`; what is kept is read by `hub/http/tasks.py`. Earlier versions kept one
text in `diff.patch`; it is still shown.
"""

import logging
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.files import read_plain, write_atomically
from bullpen.home.paths import Home
from bullpen.hub.tasks import run_plan, workspaces
from bullpen.hub.tasks.board import LiveTask
from bullpen.model.task import Task
from bullpen.model.task_shown import TaskChanges
from bullpen.worktrees.changes import (
    Changes,
    changes_since,
    head_of,
    snapshot,
    unknown_changes,
)

log = logging.getLogger("bullpen.hub")

OBJECTS = "objects"
CHANGES, OLD_DIFF = "changes.json", "diff.patch"
MOST_BYTES = 64 << 20  # four texts of at most 1 MiB each, of which every character may be escaped


def keep(home: Home, task: Task, changes: Changes) -> None:
    """Replace what is kept of an earlier run."""
    shown = TaskChanges(
        log=changes.log,
        committed=changes.committed,
        uncommitted=changes.uncommitted,
        staged=changes.staged,
    )
    directory = run_plan.task_directory(home, task.agent, task.id)
    write_atomically(directory / CHANGES, shown.model_dump_json(), 0o600)


def find(home: Home, task: Task) -> tuple[TaskChanges | None, str | None]:
    """What is kept; the second is the one text of an earlier version."""
    if not task.agent or not task.base:
        return None, None
    directory = run_plan.task_directory(home, task.agent, task.id)
    try:
        return TaskChanges.model_validate_json(read_plain(directory / CHANGES, MOST_BYTES)), None
    except FileNotFoundError:
        pass
    try:
        return None, read_plain(directory / OLD_DIFF, MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None, None


def look_before(home: Home, live: LiveTask) -> tuple[str, str]:
    """What a checkout is at: its commit, and the tree of what is not committed."""
    base, checkout = "", workspaces.checkout_of(live.session)
    if checkout is None:
        return "", ""
    try:
        base = head_of(checkout)
        return base, snapshot(checkout, _objects(home, live)) if base else ""
    except (BullpenError, OSError) as error:
        log.warning("cannot tell what is there", extra={"task": live.task.id, "why": str(error)})
        return base, ""


def keep_changes(home: Home, live: LiveTask) -> dict[str, object]:
    """What was done in a checkout, kept beside the task's logs; returns fields of the task."""
    checkout = workspaces.checkout_of(live.session)
    if checkout is None or not live.task.base:
        return {}
    try:
        try:
            changes = changes_since(
                checkout, live.task.base, live.task.before, _objects(home, live)
            )
        except BullpenError as error:
            # Not nothing: an agent may have seen to it that nobody can look.
            keep(home, live.task, unknown_changes(error.message))
            raise
        keep(home, live.task, changes)
    except (BullpenError, OSError) as error:
        log.warning("cannot tell what changed", extra={"task": live.task.id, "why": str(error)})
        return {}
    return {"commits": changes.commits.subjects, "commit_count": changes.commits.count}


def _objects(home: Home, live: LiveTask) -> Path:
    return run_plan.task_directory(home, live.task.agent, live.task.id) / OBJECTS

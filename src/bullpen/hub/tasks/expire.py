"""Forgets tasks of agents that are gone, and conversations whose tasks are all forgotten.

Called by `hub/upkeep` once a day, in small steps: others write in between. Deletes rows alone;
logs went with the agent's session, directories are `leftovers`' business.
"""

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tasks.rows import OPEN, TaskSession
from bullpen.hub.tasks.workspaces import is_scratch

ROWS = 500  # deleted in one write

OLD_TASKS = (
    f"DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE NOT {OPEN}"
    " AND coalesce(json_extract(data, '$.ended'), created) < ?"
    " AND agent NOT IN (SELECT value FROM json_each(?)) LIMIT ?)"
)
IS_FORGOTTEN = "id NOT IN (SELECT session FROM tasks)"
FORGOTTEN = f"SELECT data FROM task_sessions WHERE {IS_FORGOTTEN}"
# Asked again: somebody may have gone on with one meanwhile.
DROP = f"DELETE FROM task_sessions WHERE id IN (SELECT value FROM json_each(?)) AND {IS_FORGOTTEN}"


async def expire_tasks(store: Store, before: float, agents: Collection[str]) -> int:
    """Delete tasks that were over before then and whose agent is none of these; how many. Then all
    conversations that need not be kept."""
    deleted, count = 0, ROWS
    delete = partial(_delete, OLD_TASKS, (before, json.dumps(sorted(agents)), ROWS))
    while count == ROWS:
        count = await store.write(delete)
        deleted += count
    rows = await store.read(lambda database: database.execute(FORGOTTEN).fetchall())
    sessions = [TaskSession.model_validate_json(row[0]) for row in rows]
    gone = iter(await asyncio.to_thread(choose_sessions, sessions, os.path.lexists))
    while some := [session.id for session in itertools.islice(gone, ROWS)]:
        await store.write(partial(_delete, DROP, (json.dumps(some),)))
    return deleted


def choose_sessions(
    forgotten: Iterable[TaskSession], is_there: Callable[[str], bool]
) -> list[TaskSession]:
    """Which of these conversations are deleted. Of each directory where tasks worked one stays:
    no home is believed there (`home/accepted`). What was made for one conversation alone needs
    none any more when it is gone. Pure, but for `is_there`."""
    kept: set[str] = set()
    gone = []
    for session in forgotten:
        was_made = is_scratch(session) or bool(session.worktree)
        is_needed = bool(session.directory) and (not was_made or is_there(session.directory))
        if is_needed and session.directory not in kept:
            kept.add(session.directory)
        else:
            gone.append(session)
    return gone


def _delete(statement: str, values: tuple[object, ...], transaction: Transaction) -> int:
    return transaction.connection.execute(statement, values).rowcount

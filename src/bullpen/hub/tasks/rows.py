"""Tasks and their sessions in the database: rows in, rows out.

Each change of a task is one transaction with its event. Called by `board`, `queue` and `driver`,
which know what a change means. The functions here run inside `Store.write`, in the writer's
thread, or inside `Store.read`.
"""

import json
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bullpen.hub.store.store import Store
from bullpen.hub.store.transaction import Transaction
from bullpen.hub.tasks.delegations import Delegations
from bullpen.model.event import Draft
from bullpen.model.task import Failed, Task
from bullpen.model.value import Value

log = logging.getLogger("bullpen.hub")

OPEN = "state IN ('queued', 'working', 'idle', 'cancelling')"
PUT = (
    "INSERT INTO tasks (id, agent, session, request, state, created, text, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET agent = excluded.agent,"
    " state = excluded.state, text = excluded.text, data = excluded.data"
)
PUT_SESSION = (
    "INSERT INTO task_sessions (id, agent, data) VALUES (?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, data = excluded.data"
)
SEARCHED_CHARACTERS = 1 << 16


class NamedDirectory(Value):
    """What a task names as where it works; see `Wish`."""

    project: str | None = None
    workdir: str | None = None
    repo: str | None = None
    worktree: str | None = None
    branch: str | None = None


class TaskSession(Value):
    """A conversation with an agent, and where it takes place. Its id is ours; the engine's own is
    `conversation`, known once it has begun."""

    id: str
    agent: str = ""  # empty: of a task that nobody has taken yet
    named: NamedDirectory = NamedDirectory()  # by its first task
    directory: str = ""  # empty: not made yet, or in vain so far
    repo: str = ""  # the common git directory, if the directory is a worktree that we made
    worktree: str = ""  # its name
    branch: str = ""  # that it was made on; empty: an earlier version did not keep it
    below: str = ""  # what was named in the repository, if that is not its top
    # Of the checkout that the directory is, as found before an agent worked there; empty: it is
    # none. The first alone: an agent may have made it.
    git_dir: str = ""
    common_dir: str = ""
    conversation: str = ""
    state_files: str = ""  # as an agent's: where the engine keeps the transcript
    usd: float = 0.0  # what it has cost so far

    def in_conversation(self, conversation: str) -> "TaskSession":
        """What another conversation costs is counted from nothing."""
        if not conversation or conversation == self.conversation:
            return self
        return self.model_copy(update={"conversation": conversation, "usd": 0.0})


class TaskRows:
    """All tasks, those that are over too, and their sessions."""

    def __init__(self, store: Store, delegations: Delegations | None = None) -> None:
        self.store = store
        self._delegations = delegations

    async def put(self, task: Task, session: TaskSession | None = None, at: float = 0.0) -> None:
        """Keep it as it stands now, with the event that says so. On disk when this returns."""
        is_new_end = await self.store.write(
            lambda transaction: self._put(transaction, task, session, at)
        )
        if self._delegations is not None:
            self._delegations.note(task, is_new_end=is_new_end)

    def _put(
        self, transaction: Transaction, task: Task, session: TaskSession | None, at: float
    ) -> bool:
        row = (task.id, task.agent, task.session_id, task.request or None, task.state)
        text = f"{task.wish.prompt}\n{task.output or ''}"[:SEARCHED_CHARACTERS].casefold()
        data = json.dumps(task.model_dump(mode="json"))  # ASCII: half a surrogate can be kept
        transaction.connection.execute(PUT, (*row, task.created, text, data))
        if session is not None:
            self._put_session(transaction, session)
        transaction.append(_moved(task, at))
        if self._delegations is None:
            return False
        return self._delegations.write(transaction, task, is_late=_is_late(transaction, task))

    @staticmethod
    def _put_session(transaction: Transaction, session: TaskSession) -> None:
        row = (session.id, session.agent, session.model_dump_json())
        transaction.connection.execute(PUT_SESSION, row)

    async def keep_session(self, session: TaskSession) -> None:
        """Store the session as it is now."""
        await self.store.write(lambda transaction: self._put_session(transaction, session))

    async def find(self, id: str) -> Task | None:
        """One task, over or not."""
        rows = await self._read("SELECT data FROM tasks WHERE id = ?", id)
        return _task(rows[0][0]) if rows else None

    async def find_request(self, request: str) -> Task | None:
        """The task that was asked for under that key."""
        rows = await self._read("SELECT data FROM tasks WHERE request = ?", request)
        return _task(rows[0][0]) if rows else None

    async def find_session(self, id: str) -> TaskSession | None:
        """One session."""
        rows = await self._read("SELECT data FROM task_sessions WHERE id = ?", id)
        return TaskSession.model_validate_json(rows[0][0]) if rows else None

    async def has_session(self, id: str, director: str) -> bool:
        """Whether a task of that director has been in it."""
        where = "session = ? AND json_extract(data, '$.director') = ?"
        return bool(await self._read(f"SELECT id FROM tasks WHERE {where} LIMIT 1", id, director))

    async def sessions_over(self, *inner: Path) -> list[TaskSession]:
        """The sessions whose directory is one of those, or around one."""
        directories = sorted({str(path) for each in inner for path in (each, *each.parents)})
        marks = ", ".join("?" * len(directories))
        where = f"json_extract(data, '$.directory') IN ({marks})"
        select = f"SELECT data FROM task_sessions WHERE {where}"
        return [
            TaskSession.model_validate_json(row[0])
            for row in await self._read(select, *directories)
        ]

    async def worktree_sessions(self) -> list[TaskSession]:
        """The sessions whose directory is a worktree that was made for them."""
        select = "SELECT data FROM task_sessions WHERE json_extract(data, '$.worktree') != ''"
        return [TaskSession.model_validate_json(row[0]) for row in await self._read(select)]

    async def last_sessions(self) -> list[tuple[str, float, TaskSession]]:
        """Of each agent: when the last task that it began was asked for, and its session."""
        select = (
            "SELECT tasks.agent, tasks.created, task_sessions.data, MAX(tasks.number)"
            " FROM tasks JOIN task_sessions ON task_sessions.id = tasks.session"
            " WHERE tasks.agent != '' AND tasks.state != 'queued'"
            " AND json_extract(task_sessions.data, '$.directory') != '' GROUP BY tasks.agent"
        )
        rows: Sequence[Any] = await self._read(select)
        return [
            (agent, created, TaskSession.model_validate_json(data))
            for agent, created, data, _number in rows
        ]

    async def open(self) -> list[Task]:
        """The tasks that are not over, in the order in which they were asked for."""
        rows = await self._read(f"SELECT data FROM tasks WHERE {OPEN} ORDER BY number")
        tasks = []
        for row in rows:
            try:
                tasks.append(_task(row[0]))
            except ValidationError as error:  # one of a later version must not stop the others
                log.error("cannot read a task", extra={"why": str(error)[:500]})
        if self._delegations is not None:
            for task in tasks:
                self._delegations.note(task)
        return tasks

    async def page(
        self,
        agent: str,
        page: int,
        limit: int,
        *,
        state: str = "",
        session: str = "",
        text: str = "",
        director: str = "",
    ) -> tuple[list[Task], int]:
        """One page, newest first, and how many there are in all. No agent: everybody's."""
        where, values = ["TRUE"], []
        for column, value in (("agent", agent), ("state", state), ("session", session)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if director:
            where.append("json_extract(data, '$.director') = ?")
            values.append(director)
        if text:
            where.append("instr(text, ?) > 0")
            values.append(text.casefold())
        condition = " AND ".join(where)
        count = f"SELECT COUNT(*) FROM tasks WHERE {condition}"
        select = f"SELECT data FROM tasks WHERE {condition} ORDER BY number DESC LIMIT ? OFFSET ?"

        def look(database: sqlite3.Connection) -> tuple[list[Any], int]:
            rows = database.execute(select, (*values, limit, (page - 1) * limit)).fetchall()
            return rows, database.execute(count, values).fetchone()[0]

        rows, total = await self.store.read(look)
        return [_task(row[0]) for row in rows], total

    async def drop_old(self, agent: str, keep: int) -> list[str]:
        """Forget all but the last of those that are over; the ids of what was forgotten."""

        def drop(transaction: Transaction) -> list[str]:
            database = transaction.connection
            rows = database.execute(
                f"SELECT id FROM tasks WHERE agent = ? AND NOT {OPEN}"
                " ORDER BY number DESC LIMIT -1 OFFSET ?",
                (agent, keep),
            ).fetchall()
            database.executemany("DELETE FROM tasks WHERE id = ?", rows)
            return [row[0] for row in rows]

        return await self.store.write(drop)

    async def forgotten_sessions(self, agent: str) -> list[TaskSession]:
        """Of that agent, the sessions whose last task is no longer kept."""
        forgotten = "agent = ? AND id NOT IN (SELECT session FROM tasks)"
        rows = await self._read(f"SELECT data FROM task_sessions WHERE {forgotten}", agent)
        return [TaskSession.model_validate_json(row[0]) for row in rows]

    async def drop_session(self, id: str) -> None:
        """Forget a session that nobody can go on with."""
        await self.store.write(
            lambda transaction: transaction.connection.execute(
                "DELETE FROM task_sessions WHERE id = ?", (id,)
            )
        )

    async def ids(self, agent: str) -> set[str]:
        """Of all tasks of that agent."""
        return {row[0] for row in await self._read("SELECT id FROM tasks WHERE agent = ?", agent)}

    async def _read(self, select: str, *values: str | int) -> Sequence[tuple[str]]:
        return await self.store.read(lambda database: database.execute(select, values).fetchall())


def _is_late(transaction: Transaction, task: Task) -> bool:
    """Whether the task that gave it is over."""
    if task.giver is None or not task.giver.task:
        return False
    select = f"SELECT id FROM tasks WHERE id = ? AND {OPEN}"
    return transaction.connection.execute(select, (task.giver.task,)).fetchone() is None


def _task(data: str) -> Task:
    return Task.model_validate_json(data)


def _moved(task: Task, at: float) -> Draft:
    data = {
        "task": task.id,
        "state": task.state,
        "session": task.session_id,
        "status": task.status.model_dump(mode="json"),
        "prompt": task.preview,
        "env": list(task.env_names),
    }
    if task.warnings:
        data["warnings"] = list(task.warnings)
    if isinstance(task.status, Failed):
        data["error"] = task.status.error.model_dump()
    return Draft(
        time=at or task.ended or task.created, kind="task.state", agent=task.agent, data=data
    )

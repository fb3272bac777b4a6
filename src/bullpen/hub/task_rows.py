"""Tasks and their sessions in the database: rows in, rows out.

Each change of a task is one transaction with its event. What it means is `tasks`' business; the
functions here run in the writer's thread, inside `Store.write`, or on a reader.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from bullpen.hub.store import Store
from bullpen.model.event import Draft
from bullpen.model.state import Value
from bullpen.model.task import Failed, Task

log = logging.getLogger("bullpen.hub")

T = TypeVar("T")

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


class Session(Value):
    """A conversation with an agent, and where it takes place. Its id is ours; the engine's own is
    `conversation`, known once it has begun."""

    id: str
    agent: str = ""  # empty: of a task that nobody has taken yet
    directory: str = ""
    repo: str = ""  # the common git directory, if the directory is a worktree that we made
    worktree: str = ""  # its name
    # Of the checkout that the directory is, as found before an agent worked there; empty: it is
    # none. The first alone: an agent may have made it.
    git_dir: str = ""
    common_dir: str = ""
    conversation: str = ""
    usd: float = 0.0  # what it has cost so far


class TaskRows:
    """All of them, those that are over too."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def put(self, task: Task, session: Session | None = None, at: float = 0.0) -> None:
        """Keep it as it stands now, with the event that says so. On disk when this returns."""
        await self._write(lambda database: self._put(database, task, session, at))

    def _put(
        self, database: sqlite3.Connection, task: Task, session: Session | None, at: float
    ) -> None:
        row = (task.id, task.agent, task.session_id, task.request or None, task.state)
        text = f"{task.wish.prompt}\n{task.output or ''}"[:SEARCHED_CHARACTERS].casefold()
        data = json.dumps(task.model_dump(mode="json"))  # ASCII: half a surrogate can be kept
        database.execute(PUT, (*row, task.created, text, data))
        if session is not None:
            self.put_session(database, session)
        self.store.insert(_moved(task, at))

    @staticmethod
    def put_session(database: sqlite3.Connection, session: Session) -> None:
        """For a function given to `Store.write`."""
        database.execute(PUT_SESSION, (session.id, session.agent, session.model_dump_json()))

    async def keep_session(self, session: Session) -> None:
        """Its newest facts."""
        await self._write(lambda database: self.put_session(database, session))

    async def find(self, id: str) -> Task | None:
        """One task, over or not."""
        rows = await self._read("SELECT data FROM tasks WHERE id = ?", id)
        return _task(rows[0][0]) if rows else None

    async def find_request(self, request: str) -> Task | None:
        """The task that was asked for under that key."""
        rows = await self._read("SELECT data FROM tasks WHERE request = ?", request)
        return _task(rows[0][0]) if rows else None

    async def find_session(self, id: str) -> Session | None:
        """One session."""
        rows = await self._read("SELECT data FROM task_sessions WHERE id = ?", id)
        return Session.model_validate_json(rows[0][0]) if rows else None

    async def sessions_over(self, directory: Path) -> list[Session]:
        """Those that take place there, or in a directory around it."""
        places = [str(place) for place in (directory, *directory.parents)]
        marks = ", ".join("?" * len(places))
        where = f"json_extract(data, '$.directory') IN ({marks})"
        select = f"SELECT data FROM task_sessions WHERE {where}"
        return [Session.model_validate_json(row[0]) for row in await self._read(select, *places)]

    async def worktree_sessions(self) -> list[Session]:
        """Those whose directory is a worktree that was made for them."""
        select = "SELECT data FROM task_sessions WHERE json_extract(data, '$.worktree') != ''"
        return [Session.model_validate_json(row[0]) for row in await self._read(select)]

    async def open(self) -> list[Task]:
        """Those that are not over, in the order in which they were asked for."""
        rows = await self._read(f"SELECT data FROM tasks WHERE {OPEN} ORDER BY number")
        found = []
        for row in rows:
            try:
                found.append(_task(row[0]))
            except ValidationError as error:  # one of a later version must not stop the others
                log.error("cannot read a task", extra={"why": str(error)[:500]})
        return found

    async def page(
        self,
        agent: str,
        page: int,
        limit: int,
        *,
        state: str = "",
        session: str = "",
        text: str = "",
    ) -> tuple[list[Task], int]:
        """One page, newest first, and how many there are in all. No agent: everybody's."""
        where, values = ["TRUE"], []
        for column, value in (("agent", agent), ("state", state), ("session", session)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if text:
            where.append("instr(text, ?) > 0")
            values.append(text.casefold())
        condition = " AND ".join(where)
        total = await self._read(f"SELECT COUNT(*) FROM tasks WHERE {condition}", *values)
        rows = await self._read(
            f"SELECT data FROM tasks WHERE {condition} ORDER BY number DESC LIMIT ? OFFSET ?",
            *values,
            limit,
            (page - 1) * limit,
        )
        return [_task(row[0]) for row in rows], int(total[0][0])

    async def drop_old(self, agent: str, keep: int) -> list[str]:
        """Forget all but the last of those that are over; the ids of what was forgotten."""

        def drop(database: sqlite3.Connection) -> list[str]:
            rows = database.execute(
                f"SELECT id FROM tasks WHERE agent = ? AND NOT {OPEN}"
                " ORDER BY number DESC LIMIT -1 OFFSET ?",
                (agent, keep),
            ).fetchall()
            database.executemany("DELETE FROM tasks WHERE id = ?", rows)
            return [row[0] for row in rows]

        return await self._write(drop)

    async def ids(self, agent: str) -> set[str]:
        """Of all tasks of that agent."""
        return {row[0] for row in await self._read("SELECT id FROM tasks WHERE agent = ?", agent)}

    async def _read(self, select: str, *values: str | int) -> Sequence[tuple[str]]:
        return await asyncio.to_thread(self.store.read, select, values)

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self.store.write(function))


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
    if isinstance(task.status, Failed):
        data["error"] = task.status.error.model_dump()
    return Draft(
        time=at or task.ended or task.created, kind="task.state", agent=task.agent, data=data
    )

"""A word of before in a database, and wherever a kind of error is given: read as that of today."""

import asyncio
import json
import sqlite3
from pathlib import Path

from pydantic import TypeAdapter

from bullpen.hub.store.store import Store
from bullpen.hub.tasks.rows import TaskRows
from bullpen.model.task import Error, ErrorType, Failed, Fault, Run, Task, Wish
from bullpen.model.task_shown import show

OLD, NEW = "claude_error", "engine_error"


def failed() -> Task:
    run = Run(number=1, began=1.0, ended=2.0, fault=NEW, why="500")
    return Task(
        id="t-0123456789ab",
        agent="amy",
        wish=Wish(prompt="x"),
        session_id="s",
        created=1.0,
        ended=2.0,
        runs=(run,),
        status=Failed(error=Error(type=NEW, message="500")),
    )


def test_t2_the_old_word_is_accepted_for_the_new_one() -> None:
    for kind in (ErrorType, Fault):
        assert TypeAdapter(kind).validate_python(OLD) == NEW
        assert TypeAdapter(kind).validate_json(json.dumps(OLD)) == NEW
        assert OLD not in json.dumps(TypeAdapter(kind).json_schema())


def test_t2_a_database_of_before_shows_the_new_word(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = Store.open(path)
    asyncio.run(TaskRows(store).put(failed()))
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE tasks SET data = replace(data, ?, ?)", (NEW, OLD))
        database.execute("UPDATE events SET data = replace(data, ?, ?)", (NEW, OLD))
        assert database.execute(
            "SELECT count(*) FROM tasks WHERE instr(data, ?)", (OLD,)
        ).fetchone()
    store = Store.open(path)
    try:
        rows = TaskRows(store)
        task = asyncio.run(rows.find("t-0123456789ab"))
        page, total = asyncio.run(rows.page("amy", 1, 10, state="failed"))
    finally:
        store.close()
    assert task == failed()
    assert (page, total) == ([failed()], 1)
    assert OLD not in show(task, 9.0).model_dump_json()

"""Retention of tasks and of their conversations: what goes, and what has to stay."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen.hub.store.store import Store
from bullpen.hub.tasks import expire as expire_module
from bullpen.hub.tasks.expire import choose_sessions, expire_tasks
from bullpen.hub.tasks.rows import TaskRows, TaskSession
from bullpen.model.task import Cancelled, Task, Wish
from tests.hub.store.calls import WAIT, call, sql, write

MONTH = 1000.0
OVER = Cancelled()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "state.db")
    yield opened
    opened.close()


def keep(
    store: Store,
    id: str,
    agent: str,
    created: float,
    directory: str = "/work",
    ended: float | None = None,
) -> None:
    task = Task(
        id=id,
        agent=agent,
        session_id=f"s-{id}",
        wish=Wish(prompt="x"),
        created=created,
        ended=ended,
        status=OVER,
    )
    session = TaskSession(id=f"s-{id}", agent=agent, directory=directory)
    call(TaskRows(store).put(task, session)).result(WAIT)


def column(store: Store, statement: str) -> list[str]:
    return sorted(row[0] for row in write(store, sql(statement)).result(WAIT))


def expire(store: Store, *agents: str) -> int:
    return call(expire_tasks(store, MONTH, agents)).result(WAIT)


def test_t10_old_tasks_of_agents_that_are_gone_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expire_module, "ROWS", 2)  # as if there were hundreds of them
    for number in range(5):
        keep(store, f"gone-{number}", "gone", MONTH - 1 - number)
    keep(store, "recent", "gone", MONTH + 1)
    keep(store, "long", "gone", MONTH - 1, ended=MONTH + 1)
    keep(store, "there", "amy", 1.0)
    assert expire(store, "amy") == 5
    assert column(store, "SELECT id FROM tasks") == ["long", "recent", "there"]
    # Of the conversations one still says that tasks have worked in that directory.
    left = column(store, "SELECT id FROM task_sessions")
    assert {"s-recent", "s-long", "s-there"} < set(left)
    assert len(left) == 4


def test_t10_a_task_that_is_not_over_stays_whoever_is_gone(store: Store) -> None:
    task = Task(id="t", agent="gone", session_id="s", wish=Wish(prompt="x"), created=1.0)
    call(TaskRows(store).put(task, TaskSession(id="s", agent="gone"))).result(WAIT)
    assert expire(store) == 0
    assert column(store, "SELECT id FROM task_sessions") == ["s"]


@pytest.mark.parametrize(
    ("forgotten", "gone"),
    [
        ([{"id": "a"}], ["a"]),  # it never began
        ([{"id": "a", "directory": "/x"}], []),
        ([{"id": "a", "directory": "/x"}, {"id": "b", "directory": "/x"}], ["b"]),
        ([{"id": "a", "directory": "/x"}, {"id": "b", "directory": "/y"}], []),
        ([{"id": "a", "directory": "/gone/tree", "worktree": "tree"}], ["a"]),
        ([{"id": "a", "directory": "/tree", "worktree": "tree"}], []),
        ([{"id": "a", "directory": "/gone/a"}], ["a"]),  # made for it alone
        ([{"id": "a", "directory": "/a"}], []),
        ([{"id": "a", "directory": "/gone/project"}], []),  # a disk may be away
    ],
    ids=json.dumps,
)
def test_t10_one_conversation_of_each_directory_stays(
    forgotten: list[dict[str, str]], gone: list[str]
) -> None:
    sessions = [TaskSession(**fields) for fields in forgotten]
    chosen = choose_sessions(sessions, lambda path: not path.startswith("/gone/"))
    assert [session.id for session in chosen] == gone


def test_t10_a_conversation_that_goes_on_meanwhile_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted is what is forgotten in that moment, not what was when it was chosen."""
    keep(store, "old", "gone", 1.0, directory="")
    keep(store, "older", "gone", 1.0, directory="")

    def choose(forgotten: list[TaskSession], is_there: Callable[[str], bool]) -> list[TaskSession]:
        keep(store, "old", "amy", MONTH, directory="")
        return choose_sessions(forgotten, is_there)

    monkeypatch.setattr(expire_module, "choose_sessions", choose)
    assert expire(store) == 2
    assert column(store, "SELECT id FROM task_sessions") == ["s-old"]

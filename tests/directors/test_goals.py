"""The goals of a manager: what is done about each, and that no kill loses or repeats one (D5)."""

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bullpen.directors.config import check_director_document, load_director
from bullpen.directors.loop import Loop, checkpoint_type, request_key
from bullpen.directors.manager.config import STARTER, ManagerConfig, why_unfit
from bullpen.directors.manager.director import Manager
from bullpen.directors.manager.goals import (
    CancelGoal,
    CloseGoal,
    GiveGoal,
    Goal,
    GoalAction,
    GoalRequest,
    Goals,
    TaskSeen,
    branch_for,
    cancelled,
    find_again,
    plan,
    with_goal,
)
from bullpen.directors.manager.rules import ManagerRules
from bullpen.directors.memory import MemoryFile
from bullpen.errors import BullpenError, Kind
from bullpen.home.create import STARTER as HOME
from bullpen.home.paths import Home
from bullpen.home.roles import find_role, load_role
from bullpen.home.yamlfile import read
from bullpen.model.names import check_worktree_name, subtree_name
from bullpen.model.role import Role
from tests.directors import replay

ASKED = GoalRequest(prompt="Write it", request="0" * 32)


def goals(**fields: Any) -> Goals:
    return with_goal(Goals(), Goal(id="g-1", asked=ASKED, created_at=1.0, **fields))


@pytest.mark.parametrize(
    ("fields", "state", "kinds"),
    [
        ({}, "", [GiveGoal]),
        ({"is_cancelled": True}, "", [CloseGoal]),
        ({"task_id": "t-1"}, "", []),  # the hub was not asked yet
        ({"task_id": "t-1"}, "working", []),
        ({"task_id": "t-1"}, "completed", [CloseGoal]),
        ({"task_id": "t-1", "is_cancelled": True}, "working", [CancelGoal]),
        ({"task_id": "t-1", "is_cancelled": True, "is_told": True}, "working", []),
        ({"task_id": "t-1", "is_cancelled": True}, "failed", [CloseGoal]),
    ],
)
def test_d5_what_is_done_about_a_goal(
    fields: dict[str, Any], state: str, kinds: list[type]
) -> None:
    tasks = {"t-1": TaskSeen(state=state)} if state else {}
    assert [type(action) for action in plan(tasks, goals(**fields))] == kinds


def test_d5_the_same_request_is_the_same_goal_also_when_it_is_over() -> None:
    assert find_again(goals(), "0" * 32) == "g-1"
    [action] = plan({"t-1": TaskSeen(state="completed")}, goals(task_id="t-1"))
    rules = ManagerRules("lead", None, ManagerConfig, lambda: 2.0)  # type: ignore[arg-type]
    over = rules.remember(goals(task_id="t-1"), action, "done")
    assert (over.open, find_again(over, "0" * 32)) == ({}, "g-1")
    assert find_again(over, "1" * 32) == find_again(over, None) == ""


def test_d5_the_starter_file_has_every_key_and_is_right(tmp_path: Path) -> None:
    path = tmp_path / "lead.yaml"
    path.write_text(STARTER)
    assert read(path).data == {"type": "claude"}
    for name in ManagerConfig.model_fields:
        assert f"\n# {name}:" in STARTER or f"\n{name}:" in STARTER, name


def test_d5_the_shipped_role_may_lead_and_each_lack_is_named() -> None:
    role = load_role(find_role("manager", HOME / "roles"))
    assert list(why_unfit(role)) == []
    lacks = list(why_unfit(Role(name="x", sandbox={"enabled": False})))
    assert [lack.partition(" · ")[0] for lack in lacks] == [
        "may not give tasks",
        "has no sandbox",
        "could change the project",
        "could change files",
    ]


@pytest.mark.parametrize(
    ("fields", "key", "why"),
    [
        ({}, "", ""),
        ({"role": "coder"}, "role", "coder may not give tasks"),
        ({"role": "nobody"}, "role", "no role called nobody"),
        ({"workdir": "/x", "project": "shop"}, "", "not both"),
        ({"budget": 3}, "budget", ""),
        ({"workdir": "shop"}, "workdir", "shop is no absolute path"),
    ],
)
def test_d5_what_is_wrong_with_a_managers_file_is_said_with_its_key(
    tmp_path: Path, fields: dict[str, Any], key: str, why: str
) -> None:
    shutil.copytree(HOME / "roles", tmp_path / "roles")
    path = tmp_path / "directors" / "lead.yaml"
    path.parent.mkdir()
    path.write_text(json.dumps({"type": "claude", **fields}))
    config, problems = check_director_document(read(path), Home(tmp_path))
    assert (config is None) == bool(fields)
    assert bool(problems) == bool(fields)
    if fields:
        assert problems[0].key == key
        assert why in problems[0].message


def test_h9_the_branch_of_a_goal_is_a_name_that_a_worktree_may_have() -> None:
    assert branch_for("lead", "g-0123456789ab") == "lead-g-0123456789ab"
    long = branch_for("x" * 63, "g-0123456789ab")
    assert check_worktree_name(long) == subtree_name(long) == long
    assert long.endswith("-g-0123456789ab")


class Listening:
    """A hub that takes every task."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def do(self, call: Any) -> Any:
        self.bodies.append(call.body)
        return SimpleNamespace(task_id=f"t-{len(self.bodies)}")


def test_d5_a_change_of_the_file_counts_for_the_next_goal(tmp_path: Path) -> None:
    shutil.copytree(HOME / "roles", tmp_path / "roles")
    home = Home(tmp_path)
    path = tmp_path / "directors" / "lead.yaml"
    path.parent.mkdir()
    path.write_text("type: claude\n")
    manager = Manager(home, "lead", load_director(home, "lead")[1])
    manager.hub = hub = Listening()  # type: ignore[assignment]
    rules = manager.make_rules()
    give = GiveGoal(key="give:g-1", subject="g-1", asked=ASKED)
    for text in ("type: claude\n", "type: claude\nworkdir: /shop\nmodel: opus\n", "workdir: 3\n"):
        path.write_text(text)
        asyncio.run(rules.act(give))
    seen = [(body.get("workdir"), body.get("model")) for body in hub.bodies]
    assert seen == [(None, None), ("/shop", "opus"), ("/shop", "opus")]


# ── killed at every step ──


class FileRules(ManagerRules):
    """The hub is a file: a line for each task that was made. A task is over at the second look."""

    def __init__(self, directory: Path) -> None:
        super().__init__("lead", None, ManagerConfig, lambda: 2.0)  # type: ignore[arg-type]
        self._file = directory / "tasks.json"

    def _tasks(self) -> dict[str, int]:
        tasks: dict[str, int] = json.loads(self._file.read_text())
        return tasks

    def _write(self, tasks: dict[str, int]) -> None:
        self._file.write_text(json.dumps(tasks))

    async def _look(self, id: str) -> TaskSeen:
        tasks = self._tasks()
        self._write({**tasks, id: tasks[id] + 1})
        return TaskSeen(state="completed" if tasks[id] else "working", report=f"of {id}")

    async def _give(self, action: GiveGoal) -> str:
        id = request_key("lead", action)
        self._write({id: 0, **self._tasks()})
        return id

    async def _find_given(self, action: GiveGoal) -> str | None:
        id = request_key("lead", action)
        return id if id in self._tasks() else None


class GoalWorld:
    """Two goals are there at first."""

    changes: Sequence[Callable[[Path], None]] = ()

    def make(self, directory: Path) -> None:
        (directory / "tasks.json").write_text("{}")
        memory = goals()
        memory = with_goal(memory, Goal(id="g-2", asked=ASKED, created_at=2.0))
        file = self._file(directory)
        file.save(checkpoint_type(FileRules(directory))(memory=memory))

    def _file(self, directory: Path) -> MemoryFile[Goals, GoalAction]:
        return MemoryFile(directory / "memory.json", checkpoint_type(FileRules(directory)))

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        return Loop(FileRules(directory), self._file(directory), tell=lambda *_: None)

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        return not loop.memory.open

    def picture(self, directory: Path) -> object:
        checkpoint = self._file(directory).load()
        assert checkpoint is not None
        rows = [(row.id, row.state, row.task_id) for row in checkpoint.memory.history]
        return sorted(rows), sorted(json.loads((directory / "tasks.json").read_text()))


@pytest.mark.slow
def test_d5_killed_at_any_step_a_manager_gives_each_goal_once_and_reports_once(
    tmp_path: Path,
) -> None:
    world = GoalWorld()
    expected = replay.undisturbed(world, tmp_path / "whole")
    names = 0
    for name, picture in replay.killed(world, tmp_path / "killed"):
        assert picture == expected, name
        names += 1
    assert names >= 10


class Refusing(FileRules):
    """A hub that takes no task while `denied` is there, and may not say that it took one."""

    is_mute = False

    async def _give(self, action: GiveGoal) -> str:
        if (self._file.parent / "denied").exists():
            raise BullpenError("not there", kind=Kind.DENIED)
        id = await super()._give(action)
        if self.is_mute:
            raise BullpenError("no answer", kind=Kind.UNAVAILABLE)
        return id

    async def act(self, action: GoalAction) -> str:
        if isinstance(action, CancelGoal):
            self._write({**self._tasks(), action.task_id: 1})  # over at the next look
            return "done"
        return await super().act(action)


def test_d5_a_cancelled_goal_that_was_held_up_ends_at_once_and_is_never_given(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks.json").write_text("{}")
    denied = tmp_path / "denied"
    denied.touch()
    loop, rules = _held_up(tmp_path)
    denied.unlink()  # what stood in the way is gone by now
    _cancel(loop)
    asyncio.run(loop.step())
    assert not loop.memory.open
    assert [row.state for row in loop.memory.history] == ["cancelled"]
    assert rules._tasks() == {}
    assert not loop.troubles


def test_d5_a_cancelled_goal_that_the_hub_took_without_a_word_is_ended_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks.json").write_text("{}")
    Refusing.is_mute = True
    try:
        loop, rules = _held_up(tmp_path)
        assert len(rules._tasks()) == 1
        _cancel(loop)
        while loop.memory.open:
            assert asyncio.run(loop.step())
    finally:
        Refusing.is_mute = False
    [row] = loop.memory.history
    assert row.model_dump()["task_id"] in rules._tasks()


Held = tuple[Loop[Any, Any, Any, Any], Refusing]


def _held_up(directory: Path) -> Held:
    rules = Refusing(directory)
    file: MemoryFile[Goals, GoalAction]
    file = MemoryFile(directory / "memory.json", checkpoint_type(rules))
    file.save(checkpoint_type(rules)(memory=goals()))
    loop: Loop[Any, Any, Any, Any] = Loop(rules, file, tell=lambda *_: None, now=lambda: 2.0)
    asyncio.run(loop.step())
    assert loop.troubles
    assert asyncio.run(loop.step()) == 0
    return loop, rules


def _cancel(loop: Loop[Any, Any, Any, Any]) -> None:
    """As `POST /task/{id}/cancel` does."""
    asyncio.run(loop.change(lambda memory: cancelled(memory, "g-1")))
    asyncio.run(loop.try_now("g-1"))

"""Every route of directors has its call, and every call its route."""

from typing import Any

import pytest
from starlette.routing import Route, compile_path

from bullpen.client.call import Request
from bullpen.directors import calls
from bullpen.directors.forge.director import GitHubDirector, GitLabDirector
from bullpen.directors.forge.work import ForgeMemory, Work
from bullpen.directors.manager.director import Manager
from bullpen.directors.scheduler.director import Scheduler

COMMON = [calls.list_tasks(), calls.list_history(limit=1), calls.list_agents()]
CALLS: dict[type[Any], list[Request]] = {
    Manager: [calls.give_goal("x"), calls.get_goal("g-1"), calls.cancel_goal("g-1")],
    Scheduler: [
        calls.get_schedule(),
        calls.put_schedule([]),
        calls.add_entry({}),
        calls.remove_entry("tidy"),
        calls.run_entry("tidy"),
    ],
}


@pytest.mark.parametrize("kind", CALLS)
def test_f1_each_route_has_a_call_and_each_call_a_route(kind: type[Any]) -> None:
    routes = [one for one in kind.routes(object.__new__(kind)) if isinstance(one, Route)]
    served = {(method, one.path) for one in routes for method in (one.methods or ()) - {"HEAD"}}
    called = {
        (call.method, one.path)
        for call in (*COMMON, *CALLS[kind])
        for one in routes
        if compile_path(one.path)[0].fullmatch(call.path) and call.method in (one.methods or ())
    }
    assert called == served
    assert len(called) == len(COMMON) + len(CALLS[kind])


def test_what_is_told_beside_the_known_keys_is_kept() -> None:
    told = '{"id": "g-1", "state": "completed", "goal": "x", "issue": 3}'
    assert calls.Goal.model_validate_json(told).to_json() == {
        "id": "g-1",
        "state": "completed",
        "goal": "x",
        "issue": 3,
    }


@pytest.mark.parametrize("kind", [GitHubDirector, GitLabDirector])
def test_d2_issues_in_work_are_read_by_who_asks_a_director_for_its_tasks(kind: type[Any]) -> None:
    work = Work(number=7, title="Greet", body="", author="ann")
    told = kind.tasks(object.__new__(kind), ForgeMemory(works={7: work}))
    answer = calls.DirectorTasks.model_validate({"tasks": told, "problems": []})
    [task] = answer.tasks
    assert (task.id, task.state, task.task_id) == ("#7", "frozen", "")
    assert task.to_json()["title"] == "Greet"

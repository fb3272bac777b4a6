"""The API keeps what its description promises: requests made up from it, answers held to it.

Run by `test_schema.py`, which says in SCHEMA_EXAMPLES how many to make up for each
route. With none only the lives at the end are left: to make them up takes half a minute.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi import checks

from bullpen.hub.http.app import make_app
from bullpen.hub.http.state import Hub
from tests.api.http import ask
from tests.api.inside import Inside
from tests.engines.cli import StandIn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ["SCHEMA_EXAMPLES"])
# Made without a hub: it is the same for every hub.
DESCRIPTION = make_app(cast(Hub, SimpleNamespace())).openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
# `/shutdown` would end the hub for the tests after it; the stream has no end to wait for. What is
# below an agent is the same without its name: `tests/tasks/test_contract.py`.
BELOW = ("/agents/{name}/task/", "/agents/{name}/history")
TWINS = [path for path in DESCRIPTION["paths"] if path.startswith(BELOW)]
TESTED = SCHEMA.exclude(path=["/shutdown", "/events/stream", *TWINS])
OF_WORKERS = {
    path
    for path in DESCRIPTION["paths"]
    if path.startswith("/agents/{name}/")
    and path.split("/")[3] in ("task", "tasks", "history", "status", "config", "shutdown")
}
GIVING = ("/agents/{name}/task", "/tasks")
CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def harmless(case: schemathesis.Case) -> None:
    """Made-up words could be the name of a program, and would be run: so no program can be found.

    Everything else of a start is as it was made up. Starts that succeed are tested below.
    """
    if case.path not in ("/agents", "/pods") or not isinstance(case.body, dict):
        return
    if isinstance(case.body.get("env", {}), dict):
        case.body["env"] = {**case.body.get("env", {}), "PATH": "/nonexistent"}
    cwd, words = case.body.get("cwd"), case.body.get("words")
    if isinstance(cwd, str) and len(cwd) % 2:
        case.body["cwd"] = "/"  # hardly ever made up
    if isinstance(words, list) and words and isinstance(words[0], str):
        words[0] = words[0].replace("/", "_")


@dataclass(frozen=True)
class Worker:
    """An agent that takes tasks, and one that it has done."""

    name: str
    task: str
    session: str


@pytest.fixture(scope="module")
def worker(inside: Inside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Tess, who is the stand-in."""
    claude, root = StandIn(tmp_path_factory.mktemp("tess")), inside.home.root
    role = {"name": "tess", "sandbox": {"enabled": False}}
    (root / "roles" / "tess.yaml").write_text(json.dumps(role))
    (root / "agents" / "tess.yaml").write_text(json.dumps({"role": "tess"}))
    env = {**claude.env, "PATH": os.environ["PATH"], "BULLPEN_CLAUDE_BIN": str(claude.program)}
    start = {"kind": "headless", "name": "tess", "cwd": "/", "env": env}
    inside.call(inside.hub.tasks.load())  # before that nobody is given anything from the queue
    assert ask(inside.socket, "POST", "/agents", body=start).status == 201
    free(inside)
    target = "/agents/tess/task?wait_seconds=60"
    done = ask(inside.socket, "POST", target, body={"prompt": "[[say hi]]"})
    assert done.json["output"] == "hi", done
    yield Worker("tess", done.json["task_id"], done.json["session_id"])
    ask(inside.socket, "DELETE", "/agents/tess?grace=0")


def free(inside: Inside) -> None:
    """Nothing is left of what was made up before."""

    def is_idle() -> bool:
        for task in ask(inside.socket, "GET", "/tasks").json["tasks"]:
            ask(inside.socket, "POST", f"/task/{task['task_id']}/cancel")
        return bool(ask(inside.socket, "GET", "/agents/tess/status").json["state"] == "idle")

    wait_until(is_idle, 60)


def known_names(case: schemathesis.Case, worker: Worker) -> None:
    """Every second made-up name is that of an agent, and every second id of a task."""
    name, id = (case.path_parameters.get(key) for key in ("name", "id"))
    if case.method != "DELETE" and isinstance(name, str) and len(name) % 2 and name.isascii():
        is_for_tasks = case.path in OF_WORKERS and not case.path.endswith("/shutdown")
        case.path_parameters["name"] = worker.name if is_for_tasks else "amy"
    if isinstance(id, str) and sum(map(ord, id)) % 2:
        case.path_parameters["id"] = worker.task


def at_home(case: schemathesis.Case, worker: Worker) -> None:
    """No made-up address is cloned from, and nobody waits for an hour."""
    if isinstance(case.query, dict) and isinstance(case.query.get("wait_seconds"), int | float):
        case.query["wait_seconds"] = min(case.query["wait_seconds"], 1.0)
    if case.path in GIVING and isinstance(case.body, dict):
        if isinstance(case.body.get("repo"), str):
            case.body["repo"] = "/nonexistent/" + case.body["repo"]
        if isinstance(case.body.get("session_id"), str):
            case.body["session_id"] = worker.session


if EXAMPLES:

    @TESTED.parametrize()
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def test_b5_every_answer_is_as_described(
        case: schemathesis.Case, inside: Inside, worker: Worker
    ) -> None:
        harmless(case)
        known_names(case, worker)
        at_home(case, worker)
        case.call_and_validate(
            base_url=f"http://127.0.0.1:{inside.port}",
            headers={"Authorization": f"Bearer {inside.owner}"},
            checks=CHECKS,
            timeout=30,
        )


def test_b5_a_whole_life_is_as_described(fresh: Inside) -> None:
    """What made-up requests do not get to: everything that succeeds."""
    base = f"http://127.0.0.1:{fresh.port}"
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {fresh.owner}"

    def do(method: str, path: str, status: int = 200, name: str = "carl", **options: Any) -> Any:
        response = session.request(method, base + path.format(name=name), timeout=30, **options)
        assert response.status_code == status, response.text
        SCHEMA[path.partition("?")[0]][method].validate_response(response)
        return response

    start = {"name": "carl", "words": ["/bin/cat"], "cwd": "/", "pod": "team", "rows": 10}
    assert do("POST", "/agents", 201, json=start).json()["running"]
    component = {"name": "web", "kind": "view", "url": base, "pid": os.getpid(), "version": "1"}
    do("POST", "/components", 201, json=component)
    do("POST", "/agents/{name}/input", json={"text": "hello\r"})
    for path in ("/status", "/agents", "/agents/{name}", "/pods", "/components", "/events"):
        do("GET", path)
    for path in ("/agents/{name}/explain", "/agents/{name}/screen"):
        do("GET", path)
        assert do("GET", f"{path}?text=1").headers["content-type"].startswith("text/plain")
    do("POST", "/agents/{name}/hooks", json={"hook_event_name": "Stop"})
    do("POST", "/agents/{name}/restart", params={"grace": 0})
    do("DELETE", "/agents/{name}", params={"grace": 0})
    do("POST", "/agents/{name}/restart", params={"grace": 0})
    do("DELETE", "/pods/{name}", 404)
    do("DELETE", "/pods/{name}", name="team")
    do("POST", "/gc", json={"older_than_seconds": 0})
    do("DELETE", "/components/{name}", name="web")
    do("POST", "/shutdown", 202)


def test_t2_the_life_of_a_task_is_as_described(inside: Inside, worker: Worker) -> None:
    """All that succeeds below an agent, and without its name."""
    base = f"http://127.0.0.1:{inside.port}"
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {inside.owner}"
    free(inside)

    def do(method: str, path: str, status: int = 200, id: str = worker.task, **options: Any) -> Any:
        target = path.format(name=worker.name, id=id)
        response = session.request(method, base + target, timeout=60, **options)
        assert response.status_code == status, response.text
        SCHEMA[path][method].validate_response(response)
        return response.json() if "json" in response.headers["content-type"] else response.text

    for prefix in ("/agents/{name}", ""):
        for path in ("/tasks", "/history", "/history/{id}", "/task/{id}", "/task/{id}/debug"):
            do("GET", prefix + path)
        assert "event: end" in do("GET", prefix + "/task/{id}/events")
        give = "/agents/{name}/task" if prefix else "/tasks"
        wait = {"wait_seconds": 50}
        kept = {"prompt": "[[say hi]]", "keep_open": True, "role": "tess"}
        if prefix:
            del kept["role"]
        id = do("POST", give, params=wait, json=kept)["task_id"]
        again = {"json": {"prompt": "[[say more]]"}, "params": wait}
        assert do("POST", prefix + "/task/{id}/continue", id=id, **again)["output"] == "more"
        do("POST", prefix + "/task/{id}/end", id=id)
        free(inside)
        for prompt, status in (("[[status 401]]", 502), ("[[status 429]]", 429)):
            do("POST", give, status, params=wait, json={"prompt": prompt})
            free(inside)
        late = {"prompt": "[[hold]]", "timeout_seconds": 0.3}
        do("POST", give, 504, params=wait, json=late)
        free(inside)
        id = do("POST", give, 201, json={"prompt": "[[hold]]"})["task_id"]
        if prefix:
            do("POST", give, 409, json={"prompt": "x"})
        do("POST", prefix + "/task/{id}/cancel", id=id)
        free(inside)
    for path in ("/agents/{name}/status", "/agents/{name}/config", "/projects"):
        do("GET", path)
    do("PUT", "/agents/{name}/config", json={"role": "tess", "keep_open": False})


def test_b5_the_stream_is_as_described(inside: Inside) -> None:
    url = f"http://127.0.0.1:{inside.port}/events/stream"
    headers = {"Authorization": f"Bearer {inside.owner}"}
    with requests.get(url, headers=headers, stream=True, timeout=30) as response:
        assert response.status_code == 200
        described = DESCRIPTION["paths"]["/events/stream"]["get"]["responses"]["200"]["content"]
        assert response.headers["content-type"].partition(";")[0] in described

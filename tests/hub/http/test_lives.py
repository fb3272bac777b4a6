"""What succeeds is answered as the description of the API promises: whole lives of an agent and of
a task, which made-up requests (`test_schema.py`) do not get to."""

import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import jsonschema_rs
import pytest

from tests.hub.http.http import Answer, ask
from tests.hub.http.inside import Inside
from tests.hub.http.worker import Worker, free, made_worker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def worker(inside: Inside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with made_worker(inside, tmp_path_factory.mktemp("tess")) as made:
        yield made


def described(
    inside: Inside,
    method: str,
    path: str,
    status: int,
    names: Mapping[str, str],
    query: Mapping[str, Any] | None = None,
    body: Any = None,
) -> Answer:
    """What the hub answers, which has that status and is what its description says."""
    target = path.format_map(names) + (f"?{urlencode(query)}" if query else "")
    answer = ask(inside.port, method, target, body=body, token=inside.owner)
    assert answer.status == status, answer
    check(inside, method, path, answer)
    return answer


def check(inside: Inside, method: str, path: str, answer: Answer) -> None:
    description = inside.app.openapi()
    promised = description["paths"][path][method.lower()]["responses"][str(answer.status)]
    kind = answer.headers["content-type"].partition(";")[0]
    schema = promised["content"][kind].get("schema", {})
    if kind == "application/json":
        whole = {**schema, "components": description["components"]}
        jsonschema_rs.Draft202012Validator(whole).validate(answer.json)


@pytest.mark.storm
def test_b5_a_whole_life_is_as_described(fresh: Inside) -> None:
    """What made-up requests do not get to: everything that succeeds."""
    base = f"http://127.0.0.1:{fresh.port}"

    def do(method: str, path: str, status: int = 200, name: str = "carl", **given: Any) -> Answer:
        return described(fresh, method, path, status, {"name": name}, **given)

    start = {"name": "carl", "words": ["/bin/cat"], "cwd": "/", "pod": "team", "rows": 10}
    assert do("POST", "/agents", 201, body=start).json["running"]
    component = {"name": "web", "kind": "view", "url": base, "pid": os.getpid(), "version": "1"}
    do("POST", "/components", 201, body=component)
    do("POST", "/agents/{name}/input", body={"text": "hello\r"})
    for path in ("/status", "/agents", "/agents/{name}", "/pods", "/components", "/events"):
        do("GET", path)
    for path in ("/agents/{name}/explain", "/agents/{name}/screen"):
        do("GET", path)
        assert do("GET", path, query={"text": 1}).headers["content-type"].startswith("text/plain")
    do("POST", "/agents/{name}/hooks", body={"hook_event_name": "Stop"})
    do("POST", "/agents/{name}/restart", query={"grace": 0})
    do("DELETE", "/agents/{name}", query={"grace": 0})
    do("POST", "/agents/{name}/restart", query={"grace": 0})
    do("DELETE", "/pods/{name}", 404)
    do("DELETE", "/pods/{name}", name="team")
    do("POST", "/gc", body={"older_than_seconds": 0})
    do("DELETE", "/components/{name}", name="web")
    do("POST", "/shutdown", 202)


@pytest.mark.storm
def test_t2_the_life_of_a_task_is_as_described(inside: Inside, worker: Worker) -> None:
    """All that succeeds below an agent, and without its name."""
    free(inside)

    def do(method: str, path: str, status: int = 200, id: str = worker.task, **given: Any) -> Any:
        names = {"name": worker.name, "id": id}
        answer = described(inside, method, path, status, names, **given)
        return answer.json if "json" in answer.headers["content-type"] else answer.body.decode()

    for prefix in ("/agents/{name}", ""):
        for path in ("/tasks", "/history", "/history/{id}", "/task/{id}", "/task/{id}/debug"):
            do("GET", prefix + path)
        assert "event: end" in do("GET", prefix + "/task/{id}/events")
        give = "/agents/{name}/task" if prefix else "/tasks"
        wait = {"wait_seconds": 50}
        kept = {"prompt": "[[say hi]]", "keep_open": True, "role": "tess"}
        if prefix:
            del kept["role"]
        id = do("POST", give, query=wait, body=kept)["task_id"]
        again = {"body": {"prompt": "[[say more]]"}, "query": wait}
        assert do("POST", prefix + "/task/{id}/continue", id=id, **again)["output"] == "more"
        do("POST", prefix + "/task/{id}/end", id=id)
        free(inside)
        do("POST", give, 502, query=wait, body={"prompt": "[[status 401]]"})
        free(inside)
        late = {"prompt": "[[hold]]", "timeout_seconds": 0.3}
        do("POST", give, 504, query=wait, body=late)
        free(inside)
        id = do("POST", give, 201, body={"prompt": "[[hold]]"})["task_id"]
        if prefix:
            do("POST", give, 409, body={"prompt": "x"})
        do("POST", prefix + "/task/{id}/cancel", id=id)
        free(inside)
    for path in ("/agents/{name}/status", "/agents/{name}/config", "/projects"):
        do("GET", path)
    do("PUT", "/agents/{name}/config", body={"role": "tess", "keep_open": False})
    # The last: it waits for the end of the limit then.
    give = "/agents/{name}/task"
    id = do("POST", give, 429, query=wait, body={"prompt": "[[status 429]]"})["task_id"]
    do("POST", "/task/{id}/cancel", id=id)


def test_b5_the_stream_is_as_described(inside: Inside) -> None:
    found = ask(inside.port, "GET", "/events/stream", token=inside.owner, head_only=True)
    assert found.status == 200
    check(inside, "GET", "/events/stream", found)

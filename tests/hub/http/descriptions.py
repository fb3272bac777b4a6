"""The API keeps what its description promises: requests made up from it, answers held to it.

Run by `test_schema.py`.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi import checks

from bullpen.hub.http.app import make_app
from bullpen.hub.parts import Hub
from tests.hub.http.inside import Inside
from tests.hub.http.worker import Worker, made_worker

pytestmark = pytest.mark.slow

EXAMPLES = 20  # for each route
# Made without a hub: it is the same for every hub.
DESCRIPTION = make_app(cast(Hub, SimpleNamespace())).openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
# `/shutdown` would end the hub for the tests after it; the stream has no end to wait for. What is
# below an agent is the same without its name: `tests/hub/tasks/test_contract.py`.
BELOW = ("/agents/{name}/task/", "/agents/{name}/history")
TWINS = [path for path in DESCRIPTION["paths"] if path.startswith(BELOW)]
TESTED = SCHEMA.exclude(path=["/shutdown", "/events/stream", *TWINS])
OF_WORKERS = {
    path
    for path in DESCRIPTION["paths"]
    if path.startswith("/agents/{name}/")
    and path.split("/")[3] in ("task", "tasks", "history", "status", "config", "shutdown")
}
WAITS = ("wait_seconds", "seconds", "wait")
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


@pytest.fixture(scope="module")
def worker(inside: Inside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with made_worker(inside, tmp_path_factory.mktemp("tess")) as made:
        yield made


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
    for name in WAITS if isinstance(case.query, dict) else ():
        if isinstance(case.query.get(name), int | float):
            case.query[name] = min(case.query[name], 1.0)
    if case.path in GIVING and isinstance(case.body, dict):
        if isinstance(case.body.get("repo"), str):
            case.body["repo"] = "/nonexistent/" + case.body["repo"]
        if isinstance(case.body.get("session_id"), str):
            case.body["session_id"] = worker.session


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

"""The API keeps what its description promises: requests made up from it, answers held to it."""

import os
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
from tests.api.conftest import Inside

pytestmark = pytest.mark.slow

# Made without a hub: it is the same for every hub.
DESCRIPTION = make_app(cast(Hub, SimpleNamespace())).openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
# `/shutdown` would end the hub for the tests after it; the stream has no end to wait for.
TESTED = SCHEMA.exclude(path=["/shutdown", "/events/stream"])
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


def known_names(case: schemathesis.Case) -> None:
    """Every second made-up name is that of an agent."""
    name = case.path_parameters.get("name")
    if case.method != "DELETE" and isinstance(name, str) and len(name) % 2 and name.isascii():
        case.path_parameters["name"] = "amy"


@TESTED.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_b5_every_answer_is_as_described(case: schemathesis.Case, inside: Inside) -> None:
    harmless(case)
    known_names(case)
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
    do("POST", "/shutdown")


def test_b5_the_stream_is_as_described(inside: Inside) -> None:
    url = f"http://127.0.0.1:{inside.port}/events/stream"
    headers = {"Authorization": f"Bearer {inside.owner}"}
    with requests.get(url, headers=headers, stream=True, timeout=30) as response:
        assert response.status_code == 200
        described = DESCRIPTION["paths"]["/events/stream"]["get"]["responses"]["200"]["content"]
        assert response.headers["content-type"].partition(";")[0] in described

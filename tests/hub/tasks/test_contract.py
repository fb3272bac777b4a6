"""The API of an agent is one API: at its own port, and below its name at the hub."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub.http.agents import token_of
from tests.hub.http.http import HANDSHAKE, ask, raw
from tests.hub.tasks.desk import Desk
from tests.hub.tasks.office import OVER, Seated, Side, made_office, running, seated, task_agent
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PUBLIC = {"type", "interfaces", "name", "version", "state", "uptime_seconds", "home_id"}
STATUS = PUBLIC | {"pid", "current_task", "config", "sandbox", "log"}
ERROR = {"error", "message", "details"}
TASK = {
    *("task_id", "state", "exit_code", "started_at", "completed_at", "duration_seconds", "output"),
    *("error", "session_id", "token_usage", "cost_usd", "agent"),
}
NO_TASK = "t-000000000000"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_office(tmp_path_factory.mktemp("office")) as made:
        task_agent(made, "amy")
        made.agent("bob", walls=False)
        yield made


@pytest.fixture(scope="module")
def amy(office: Desk) -> Seated:
    return seated(office, "amy", office.status("amy")["config"]["port"])


@pytest.fixture(params=["port", "hub"])
def side(request: pytest.FixtureRequest, office: Desk, amy: Seated) -> Iterator[Side]:
    """Of an agent that has nothing to do."""
    yield amy.at_port if request.param == "port" else amy.below_hub
    current = office.status("amy")["current_task"]
    if current:
        amy.below_hub.ask("POST", f"/task/{current['id']}/cancel")
    # It is let go of last: until then the lists are not what they are for the next test.
    wait_until(lambda: amy.below_hub.ask("GET", "/tasks").json == {"tasks": []})


def refused(answer: Any, status: int, error: str, *, again: bool) -> dict[str, Any]:
    assert (answer.status, answer.json["error"]) == (status, error), answer
    assert set(answer.json) >= ERROR
    assert answer.json["details"]["retryable"] is again
    return dict(answer.json)


# ── status ──


def test_c1_the_owner_sees_all_of_an_agent(side: Side, office: Desk) -> None:
    answer = side.ask("GET", "/status")
    assert answer.status == 200
    found = answer.json
    assert set(found) == STATUS
    assert found["type"] == "agent"
    assert found["name"] == "amy"
    assert found["interfaces"] == ["statusable", "taskable", "observable", "configurable"]
    assert (found["state"], found["current_task"]) == ("idle", None)
    assert found["pid"] == office.pen.pid
    assert found["home_id"] == office.pen.home.id
    assert found["config"]["role"] == "amy"
    assert found["sandbox"] is None  # turned off in its role
    assert [entry["message"] for entry in found["log"]][:2] == ["started", "takes tasks"]


def test_c1_the_status_of_an_agent_can_be_asked_for_without_its_body(
    side: Side, office: Desk
) -> None:
    answer = ask(side.port, "HEAD", side.prefix + "/status", token=office.token, head_only=True)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


def test_c1_anybody_sees_only_that_it_is_there(side: Side, office: Desk) -> None:
    # At the hub's port who has no token learns no names.
    is_own_port = not side.prefix
    tokens = [token_of(office.pen.home, "bob"), *([""] if is_own_port else [])]
    for token in tokens:
        answer = side.ask("GET", "/status", token=token)
        assert answer.status == 200
        assert set(answer.json) == PUBLIC
    if not is_own_port:
        refused(side.ask("GET", "/status", token=""), 401, "unauthorized", again=False)
    assert set(side.ask("GET", "/status", token=token_of(office.pen.home, "amy")).json) == STATUS
    refused(side.ask("GET", "/status", token="wrong"), 401, "unauthorized", again=False)


CLOSED = (
    *(("GET", "/tasks"), ("GET", "/history"), ("GET", "/config"), ("PUT", "/config")),
    *(("POST", "/task"), ("POST", "/shutdown"), ("GET", f"/task/{NO_TASK}")),
    *(("POST", f"/task/{NO_TASK}/{verb}") for verb in ("cancel", "continue", "end")),
    *(("GET", f"/task/{NO_TASK}/{noun}") for noun in ("events", "debug")),
    *(("GET", f"/history/{NO_TASK}"), ("POST", "/status")),
)


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_c4_everything_else_needs_a_token(side: Side, method: str, path: str) -> None:
    for token in ("", "wrong"):
        answer = side.ask(method, path, token=token)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"


def test_c4_a_foreign_host_or_site_is_refused(side: Side) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        refused(side.ask("GET", "/status", **headers), 403, "forbidden", again=False)


# ── a task ──


def test_t1_a_task_from_its_beginning_to_its_end(side: Side) -> None:
    answer = side.ask("POST", "/task", {"prompt": "[[say all good]]"})
    assert answer.status == 201
    assert set(answer.json) == {"task_id", "session_id", "status"}
    assert answer.json["status"] == "queued"
    id = answer.json["task_id"]
    found = side.wait(id, *OVER)
    assert set(found) >= TASK
    assert (found["state"], found["output"], found["agent"]) == ("completed", "all good", "amy")
    assert found["session_id"] == answer.json["session_id"]
    events = side.stream(f"/task/{id}/events")
    assert events[-1]["event"] == "end"
    assert events[-1]["data"]["output"] == "all good"
    texts = [event for event in events if event["event"] == "text"]
    assert texts[0]["data"]["text"] == "all good"
    rest = side.stream(f"/task/{id}/events", **{"Last-Event-ID": texts[-1]["id"]})
    assert "text" not in [event["event"] for event in rest]
    debug = side.ask("GET", f"/task/{id}/debug").json
    assert "all good" in debug["runs"][0]["stdout"]
    page = side.ask("GET", "/history?limit=1").json
    assert set(page) == {"items", "page", "limit", "total"}
    assert page["items"][0]["task_id"] == id
    whole = side.ask("GET", f"/history/{id}").json
    assert whole["logs"][0]["stdout"] == debug["runs"][0]["stdout"]
    wait_until(lambda: side.ask("GET", "/tasks").json == {"tasks": []})  # it is let go of last
    for verb, body in (("cancel", None), ("continue", {"prompt": "x"}), ("end", None)):
        late = side.ask("POST", f"/task/{id}/{verb}", body)
        error = refused(late, 409, "already_completed", again=False)
        assert (error["final_state"], error["task_id"]) == ("completed", id)


@pytest.mark.few(1)
def test_t5_a_task_that_is_kept_open(side: Side) -> None:
    id = side.give("[[say one]]", keep_open=True)
    assert side.wait(id, "idle")["output"] == "one"
    assert side.state() == "working"
    answer = side.ask("POST", f"/task/{id}/continue", {"prompt": "[[say two]]"})
    assert (answer.status, answer.json["state"]) == (200, "working")
    assert side.wait(id, "idle")["output"] == "two"
    waited = side.ask("POST", f"/task/{id}/continue?wait_seconds=50", {"prompt": "[[say three]]"})
    assert (waited.json["state"], waited.json["output"]) == ("idle", "three")
    ended = side.ask("POST", f"/task/{id}/end")
    assert ended.status == 200
    assert {key: ended.json[key] for key in ("task_id", "state", "output")} == {
        "task_id": id,
        "state": "completed",
        "output": "three",
    }
    side.wait_state("idle")


def test_t9_one_task_at_a_time(side: Side, office: Desk, request: Any) -> None:
    gate = f"busy-{request.node.callspec.id}"
    id = side.give(f"look [[hold {gate} ; say done]]\n" + "very long " * 50)
    office.claude.wait_held(gate)
    status = side.ask("GET", "/status").json
    assert status["state"] == "working"
    assert set(status["current_task"]) == {"id", "started_at", "prompt_preview"}
    assert status["current_task"]["id"] == id
    assert len(status["current_task"]["prompt_preview"]) == 80
    assert "current_task" not in side.ask("GET", "/status", token="").json
    busy = refused(side.ask("POST", "/task", {"prompt": "x"}), 409, "agent_busy", again=True)
    assert busy["details"]["current_task"] == status["current_task"]
    assert busy["current_task"] == id
    for odd in ("t-1", "x", "t-00000000000G", "..%2f..", "t" * 3000):
        answer = side.ask("GET", f"/task/{odd}")
        assert (answer.status, answer.json["error"]) == (404, "not_found"), odd
    for empty in ({}, {"prompt": ""}, {"prompt": " \n"}):
        missing = refused(side.ask("POST", "/task", empty), 400, "validation_error", again=False)
        assert missing["message"] == "prompt is required"
    for verb, body in (("continue", {"prompt": "x"}), ("end", None)):
        early = side.ask("POST", f"/task/{id}/{verb}", body)
        assert refused(early, 409, "task_in_progress", again=True)["task_id"] == id
    for body in (None, {}, {"force": False}, {"timeout_seconds": None}):
        leave = side.ask("POST", "/shutdown", body)
        assert refused(leave, 409, "task_in_progress", again=True)["task_id"] == id
    assert side.state() == "working"  # refused as a whole
    assert [task["task_id"] for task in side.ask("GET", "/tasks").json["tasks"]] == [id]
    cancelled = side.ask("POST", f"/task/{id}/cancel")
    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelling")
    assert side.wait(id, *OVER)["state"] == "cancelled"
    side.wait_state("idle")


def test_c4_the_description_is_of_the_agents_own_paths(side: Side) -> None:
    api = side.ask("GET", "/openapi.json").json
    assert {"/task", "/task/{id}", "/status", "/config", "/shutdown", "/history"} <= set(
        api["paths"]
    )
    assert not [path for path in api["paths"] if path.startswith("/agents")]
    parameters = api["paths"]["/task/{id}"]["get"]["parameters"]
    assert [one["name"] for one in parameters] == ["id"]
    assert side.ask("GET", "/openapi.json", token="").status == 401


# ── errors ──


def test_t9_what_is_not_there(side: Side) -> None:
    paths = (f"/task/{NO_TASK}", f"/task/{NO_TASK}/debug", f"/task/{NO_TASK}/events")
    for path in (*paths, f"/history/{NO_TASK}", "/nowhere"):
        refused(side.ask("GET", path), 404, "not_found", again=False)
    for verb, body in (("cancel", None), ("continue", {"prompt": "x"}), ("end", None)):
        answer = side.ask("POST", f"/task/{NO_TASK}/{verb}", body)
        refused(answer, 404, "not_found", again=False)
    unknown = {"prompt": "x", "session_id": "00000000-0000-4000-8000-000000000000"}
    refused(side.ask("POST", "/task", unknown), 404, "not_found", again=False)


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], None, {"prompt": ""}, {"prompt": " \n"}, {"prompt": "a\0b"}, {"prompt": 1}),
        *({"prompt": "x", "more": 1}, {"prompt": "x", "timeout_seconds": 0}),
        *({"prompt": "x", "timeout_seconds": "NaN"}, {"prompt": "x", "session_id": "../x"}),
        *({"prompt": "x", "workdir": "/tmp", "repo": "/tmp", "worktree": "b"},),
        *({"prompt": "x", "repo": "/tmp"}, {"prompt": "x", "worktree": "b"}),
        *({"prompt": "x", "env": {"A B": "x"}}, {"prompt": "x", "env": {"A": 1}}),
        *({"prompt": "x", "request": "1"}, {"prompt": "x", "model": "--evil"}),
    ],
    ids=repr,
)
def test_t9_what_does_not_fit(side: Side, body: Any) -> None:
    refused(side.ask("POST", "/task", body), 400, "validation_error", again=False)
    assert side.ask("GET", "/status").json["current_task"] is None


def test_t9_other_things_that_do_not_fit(side: Side) -> None:
    for query in ("limit=101", "limit=0", "page=0", "state=gone", "page=x", "text=" + "x" * 201):
        answer = side.ask("GET", f"/history?{query}")
        refused(answer, 400, "validation_error", again=False)
    mark = side.ask("GET", f"/task/{NO_TASK}/events", **{"Last-Event-ID": "x" * 50})
    refused(mark, 400, "validation_error", again=False)
    for body in ({"timeout_seconds": -1}, {"force": "x"}, {"more": 1}, {"timeout_seconds": 1e9}):
        answer = side.ask("POST", "/shutdown", body)
        refused(answer, 400, "validation_error", again=False)
    wait = side.ask("POST", "/task?wait_seconds=0", {"prompt": "x"})
    refused(wait, 400, "validation_error", again=False)


def test_t9_too_large(side: Side) -> None:
    body = json.dumps({"prompt": "x" * (9 << 20)}).encode()
    refused(side.ask("POST", "/task", body), 413, "too_large", again=False)


@pytest.mark.storm
def test_t9_a_call_that_waits_tells_the_failure(side: Side) -> None:
    """In the words of the engine: 401 is for ever, 500 perhaps not, 429 later."""
    tried = "/task?wait_seconds=55"
    done = side.ask("POST", tried, {"prompt": "[[say hi]]"})
    assert (done.status, done.json["output"]) == (200, "hi")
    side.wait_state("idle")
    fatal = refused(
        side.ask("POST", tried, {"prompt": "[[status 401]]"}), 502, "engine_error", again=False
    )
    assert fatal["task_id"] == fatal["details"]["task_id"]
    side.wait_state("idle")
    late = {"prompt": "[[hold never]]", "timeout_seconds": 0.5}
    refused(side.ask("POST", tried, late), 504, "timeout", again=True)
    side.wait_state("idle")
    soon = side.ask("POST", "/task?wait_seconds=0.2", {"prompt": "[[hold never]]"})
    assert (soon.status, soon.json["status"]) == (201, "queued")


# ── config ──


def test_c5_the_file_is_read_and_written(side: Side, office: Desk) -> None:
    before = side.ask("GET", "/config").json
    assert set(before) == {"config", "has_file"}
    changed = {**before["config"], "max_retries": 1, "keep_open": False}
    done = side.ask("PUT", "/config", changed)
    assert done.status == 200
    assert set(done.json) == {"config", "has_file", "live", "restart", "comments_dropped"}
    assert set(done.json["live"]) <= {"max_retries"}
    assert side.ask("GET", "/config").json["config"]["max_retries"] == 1
    wrong = side.ask("PUT", "/config", {**changed, "claude": {"timeout": "soon"}, "prot": 1})
    error = refused(wrong, 400, "validation_error", again=False)
    assert "timeout" in json.dumps(error)
    assert "prot" in json.dumps(error)
    assert side.ask("GET", "/config").json["config"]["max_retries"] == 1


# ── the two of them side by side ──

READS = (
    *("/status", "/config", "/tasks", "/history", "/history?limit=1&page=2", "/nowhere", "/"),
    *(f"/task/{NO_TASK}", "/task/x", "/history/x", "/history?limit=1000", "/explain", "//status"),
    *("/status/", "/Status", "/%73tatus", "/screen", "/messages", "/diff", "/agents", "/pods"),
)


@pytest.mark.parametrize("path", READS)
def test_c4_the_answers_are_the_same(amy: Seated, path: str) -> None:
    one, other = amy.at_port.ask("GET", path), amy.below_hub.ask("GET", path)
    assert one.status == other.status
    left, right = one.json, other.json
    for body in (left, right):
        body.pop("uptime_seconds", None)
    assert left == right


# ── what is not below an agent ──

BEYOND = (
    *("/agents", "/agents/amy", "/agents/amy/status", "/agents/bob/status", "/components"),
    *("/pods", "/events", "/events/stream", "/approvals", "/usage", "/metrics"),
    *("/docs", "/projects", "/gc", "/..", "/../status", "/../bob/status", "/../../agents"),
    *("/../../shutdown", "/%2e%2e/bob/status", "/..%2fbob/status", "/%2e%2e%2fbob%2fstatus"),
    *("/..%2f..%2fshutdown", "//agents", "///agents", "/./status", "/status/../../bob/status"),
    *("/..;/bob/status", "/%5c..%5cbob/status", "/\\..\\bob\\status", "/%00/status"),
    *("/status%2f..%2f..%2fbob%2fstatus", "/%c0%ae%c0%ae/bob/status", "/%252e%252e/bob/status"),
    *("/\uff0e\uff0e\uff0fbob/status".encode().decode("latin-1"),),
)


@pytest.mark.parametrize("path", BEYOND)
def test_c4_the_hub_is_not_behind_the_port(office: Desk, amy: Seated, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "PUT"):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {office.token}\r\n\r\n"
        answer = raw(amy.at_port.port, head.encode("latin-1"))
        assert int(answer.split(b" ")[1]) in (400, 404), answer
    assert office.pen.answers()
    assert running(office, "bob")


@pytest.mark.parametrize("target", ["-2/status", "*", "bob/status", "../bob/status", "?x", "#x"])
def test_c4_a_target_without_a_slash_leads_nowhere(office: Desk, amy: Seated, target: str) -> None:
    """The agent's name is put in front of it: it must not become another agent's."""
    if "amy-2" not in office.pen.agents():
        office.agent("amy-2", walls=False)
    for method in ("GET", "OPTIONS", "CONNECT", "POST"):
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {office.token}\r\n\r\n"
        answer = raw(amy.at_port.port, head.encode(), one=True)
        assert not answer or 400 <= int(answer.split(b" ")[1]) < 500, answer


def test_c4_a_proxys_form_names_the_same_agent(office: Desk, amy: Seated) -> None:
    head = "GET http://localhost/agents/bob/status HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(amy.at_port.port, f"{head}Connection: close\r\n\r\n".encode())
    assert b"bob" not in answer
    assert office.status("bob")["state"] == "idle"


def test_c4_no_terminal_behind_the_port_but_its_own(office: Desk, amy: Seated) -> None:
    for path in ("/agents/bob/terminal", "/../bob/terminal", "/..%2fbob%2fterminal"):
        answer = ask(amy.at_port.port, "GET", path, HANDSHAKE, token=office.token)
        assert answer.status == 404


# ── leaving ──


@pytest.mark.parametrize("which", ["at_port", "below_hub"])
def test_c2_an_idle_agent_leaves(office: Desk, which: str) -> None:
    eve = task_agent(office, "eve")
    side: Side = getattr(eve, which)
    answer = side.ask("POST", "/shutdown")
    assert answer.status == 202
    assert set(answer.json) >= {"message", "drain_timeout"}
    assert answer.json["drain_timeout"] == 30
    wait_until(lambda: not running(office, "eve"))
    with pytest.raises(ConnectionRefusedError):
        eve.at_port.ask("GET", "/status")
    gone = eve.below_hub.ask("POST", "/task", {"prompt": "x"})
    refused(gone, 409, "conflict", again=False)
    assert eve.below_hub.ask("GET", "/history").status == 200

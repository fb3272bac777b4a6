"""Directors, views and bridges that tell the hub where they are."""

import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen import proc
from bullpen.component.journal import Journal
from bullpen.home.paths import HUB
from bullpen.hub.http import guard
from tests.hub.http.http import Answer, ask
from tests.hub.http.inside import Inside
from tests.hub.pen import Pen
from tests.processes import alive, kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def about(name: str = "telegram", **fields: Any) -> dict[str, Any]:
    given = {"kind": "bridge", "url": "http://127.0.0.1:9100", "version": "0.1.0"}
    return {"name": name, "pid": os.getpid(), **given, **fields}


def register(inside: Inside, name: str = "telegram", **fields: Any) -> Answer:
    return ask(inside.socket, "POST", "/components", body=about(name, **fields))


def listed(inside: Inside) -> list[str]:
    return [one["name"] for one in ask(inside.socket, "GET", "/components").json]


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that can be a component."""
    process = subprocess.Popen(["/bin/sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def _none_left(inside: Inside) -> Iterator[None]:
    yield
    for name in listed(inside):
        assert ask(inside.socket, "DELETE", f"/components/{name}").status == 200


def test_b5_a_component_registers_and_is_shown(inside: Inside) -> None:
    answer = register(inside)
    assert answer.status == 201
    assert answer.json == {
        **about(),
        "state": None,
        "problem": "",
        "start_time": proc.start_time(os.getpid()),
        "registered": pytest.approx(time.time(), abs=60),
        "gone_at": None,
    }
    assert ask(inside.socket, "GET", "/components").json == [answer.json]
    assert ask(inside.socket, "GET", "/status").json["components"] == 1
    assert ask(inside.socket, "DELETE", "/components/telegram").json == answer.json
    assert listed(inside) == []
    assert ask(inside.socket, "DELETE", "/components/telegram").status == 404


def test_b5_the_same_process_may_say_it_again(inside: Inside) -> None:
    register(inside)
    assert register(inside, url="http://localhost:9101", version="0.2.0").status == 201
    (found,) = ask(inside.socket, "GET", "/components").json
    assert (found["url"], found["version"]) == ("http://localhost:9101", "0.2.0")


def test_b5_a_component_says_how_it_is_and_stays_the_one_that_came(inside: Inside) -> None:
    came = register(inside).json["registered"]
    assert register(inside, state="error", problem="no token").status == 201
    (found,) = ask(inside.socket, "GET", "/components").json
    assert (found["state"], found["problem"]) == ("error", "no token")
    assert found["registered"] == came
    assert register(inside, state="asleep").status == 400


def test_b5_a_name_belongs_to_a_living_process(
    inside: Inside, sleeper: "subprocess.Popen[bytes]"
) -> None:
    assert register(inside, pid=sleeper.pid).status == 201
    answer = register(inside)
    assert answer.status == 409
    assert str(sleeper.pid) in answer.json["message"]
    sleeper.kill()
    sleeper.wait()
    assert register(inside).status == 201


def test_b5_a_component_whose_process_is_gone_is_dropped(
    inside: Inside, sleeper: "subprocess.Popen[bytes]"
) -> None:
    register(inside, "one", pid=sleeper.pid)
    register(inside, "two")
    sleeper.kill()  # and not reaped: a zombie is gone, too
    wait_until(lambda: listed(inside) == ["two"])
    assert ask(inside.socket, "GET", "/status").json["components"] == 1


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1:1", "http://example.com:1", "http://127.0.0.1", "ftp://127.0.0.1:1"),
        *("http://user:pass@127.0.0.1:1", "http://user@localhost:1", "http://localhost:1/?x=y"),
        *("http://localhost:1/?", "http://localhost:1#x", "http://127.0.0.1.evil.example:1"),
        *("http://localhost:99999", "http://localhost:x", "http://[::1:1", "http://0.0.0.0:1"),
        *("//localhost:1", "localhost:1", "", "http://localhost:1\n", "http://localhost:1/ x"),
        *("http://localhost:1/\x1b[2J", "http://127.0.0.1:0", "http://l\u00f6calhost:1"),
    ],
)
def test_b5_only_addresses_of_this_machine(inside: Inside, url: str) -> None:
    answer = register(inside, url=url)
    assert (answer.status, answer.json["error"]) == (400, "validation_error")
    assert "body.url" in answer.json["message"]


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1:65535/", "http://[::1]:80/api"]
)
def test_b5_addresses_of_this_machine(inside: Inside, url: str) -> None:
    assert register(inside, url=url).status == 201


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../x"},
        {"name": ""},
        {"name": "X"},
        {"name": "x\n"},
        {"kind": "agent"},
        {"pid": 0},
        {"pid": -1},
        {"pid": 1 << 40},
        {"pid": "1; rm"},
        {"version": ""},
        {"version": "\x1b[2J"},
        {"start_time": "mine"},
        {"more": 1},
    ],
    ids=repr,
)
def test_b5_what_a_component_may_not_say(inside: Inside, fields: dict[str, Any]) -> None:
    assert register(inside, **fields).status == 400


def test_b5_a_process_that_is_gone_cannot_register(
    inside: Inside, sleeper: "subprocess.Popen[bytes]"
) -> None:
    sleeper.kill()
    sleeper.wait()
    answer = register(inside, pid=sleeper.pid)
    assert answer.status == 400
    assert str(sleeper.pid) in answer.json["message"]


def test_p7_bridges_come_last_in_the_list(inside: Inside) -> None:
    assert b"Bridges" not in ask(inside.socket, "GET", "/agents?text=1").body
    register(inside, "web", kind="view")
    assert b"Bridges" not in ask(inside.socket, "GET", "/agents?text=1").body
    register(inside)
    register(inside, "slack", url="http://127.0.0.1:9101")
    for query in ("text=1", "text=1&pod=*", "text=1&pod=nobody"):
        lines = ask(inside.socket, "GET", f"/agents?{query}").body.decode().splitlines()
        assert lines[-3:] == [
            "Bridges",
            "  slack     http://127.0.0.1:9101  0.1.0",
            "  telegram  http://127.0.0.1:9100  0.1.0",
        ]
    assert b"\x1b[1mBridges" in ask(inside.socket, "GET", "/agents?text=1&colour=1").body


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_b5_components_are_known_to_the_next_hub(
    pen: Pen, sleeper: "subprocess.Popen[bytes]", how: str
) -> None:
    where = pen.home.socket(HUB)
    for name, pid in (("stays", os.getpid()), ("goes", sleeper.pid)):
        assert ask(where, "POST", "/components", body=about(name, pid=pid)).status == 201
    before = ask(where, "GET", "/components").json
    if how == "killed":
        pen.kill_hub()
    else:
        kill(pen.pid, 15)
    sleeper.kill()
    sleeper.wait()
    pen.start()
    after = ask(where, "GET", "/components").json
    assert after == [one for one in before if one["name"] == "stays"]
    assert "Bridges\n  stays" in pen.cli("list").out


def test_f2_one_that_died_is_known_to_the_next_hub_until_it_comes_back(
    pen: Pen, sleeper: "subprocess.Popen[bytes]"
) -> None:
    where = pen.home.socket(HUB)

    def gone() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(where, "GET", "/components?gone=1").json
        return [one for one in found if one["gone_at"] is not None]

    died = about("dies", pid=sleeper.pid, state="error", problem="no token")
    for body in (died, about("leaves"), about("stays", state="working")):
        assert ask(where, "POST", "/components", body=body).status == 201
    ask(where, "DELETE", "/components/leaves")
    sleeper.kill()
    sleeper.wait()
    (before,) = gone()
    assert {key: before[key] for key in died} == died
    assert before["gone_at"] == pytest.approx(time.time(), abs=60)
    pen.kill_hub()
    pen.start()
    assert gone() == [before]
    (stays,) = ask(where, "GET", "/components").json
    assert (stays["name"], stays["state"]) == ("stays", None)  # one that lives says it again
    assert ask(where, "POST", "/components", body=about("dies")).status == 201
    assert gone() == []
    pen.kill_hub()
    pen.start()
    assert gone() == []
    assert [one["name"] for one in ask(where, "GET", "/components").json] == ["dies", "stays"]


# ── the hub is a component, too ──

PUBLIC = {"type", "interfaces", "name", "version", "state", "uptime_seconds", "home_id"}
OWNERS = PUBLIC | {"pid", "current_task", "config", "sandbox", "log"}
FIGURES = {"settings_note", "port", "home", "agents", "running", "components"}


def test_c1_the_status_of_the_hub(inside: Inside) -> None:
    for answer in (
        ask(inside.socket, "GET", "/status"),
        ask(inside.port, "GET", "/status", token=inside.owner),
    ):
        status = answer.json
        assert set(status) == OWNERS | FIGURES
        assert (status["type"], status["name"], status["state"]) == ("hub", "hub", "idle")
        assert status["interfaces"] == ["statusable", "observable"]
        assert status["home_id"] == inside.home.id
        assert status["pid"] == os.getpid()
        assert status["current_task"] is None
        assert status["sandbox"] is None
        assert (status["port"], status["home"]) == (inside.port, str(inside.home.root))
        assert status["config"]["discovery"]["method"] == "scan"
        assert not {"fleet", "notifications"} & set(status["config"])  # may hold credentials


def test_c1_without_a_token_only_what_anybody_may_know(inside: Inside) -> None:
    whole = ask(inside.socket, "GET", "/status").json
    for query in ("", "?text=1", "?text=0&x=y"):
        answer = ask(inside.port, "GET", f"/status{query}")
        assert answer.status == 200
        assert set(answer.json) == PUBLIC
        same = PUBLIC - {"uptime_seconds"}
        assert {key: answer.json[key] for key in same} == {key: whole[key] for key in same}
        for hidden in (str(inside.home.root), "amy", str(os.getpid())):
            assert hidden.encode() not in answer.body


@pytest.mark.parametrize("token", ["x", "bullpen_" + "x" * 43])
def test_c1_a_wrong_token_is_worse_than_none(inside: Inside, token: str) -> None:
    answer = ask(inside.port, "GET", "/status", token=token)
    assert (answer.status, answer.json["error"]) == (401, "unauthorized")
    assert ask(inside.port, "GET", "/status", {"Authorization": ""}).status == 401


@pytest.mark.parametrize(
    ("method", "target"),
    [
        *(("POST", "/status"), ("HEAD", "/agents"), ("DELETE", "/status"), ("GET", "/status/")),
        *(("GET", "//status"), ("GET", "/agents/amy/status/x"), ("GET", "/agents//status")),
        *(("GET", "/agents"), ("GET", "/agents/amy"), ("GET", "/agents/status"), ("GET", "/x")),
        *(("GET", "/agents/amy/screen"), ("GET", "/components"), ("POST", "/shutdown")),
        *(("GET", "/agents/x%2F..%2Famy%2Fstatus"), ("GET", "/docs"), ("GET", "/openapi.json")),
        *(("GET", "/agents/amy/screen?/status"), ("GET", "/events/stream"), ("GET", "/events")),
    ],
)
def test_c1_nothing_else_is_open(inside: Inside, method: str, target: str) -> None:
    assert ask(inside.port, method, target, head_only=method == "HEAD").status == 401


def test_c1_a_status_can_be_asked_for_without_its_body(inside: Inside) -> None:
    answer = ask(inside.port, "HEAD", "/status", head_only=True)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/json"


def test_c1_nobody_in_particular_is_neither_the_owner_nor_an_agent(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever path were opened by mistake: what is the owner's stays so."""
    monkeypatch.setattr(guard, "OPEN", re.compile(".*"))
    assert ask(inside.port, "GET", "/components").status == 403
    assert ask(inside.port, "GET", "/agents/amy/screen").status == 403
    assert ask(inside.port, "GET", "/usage").status == 403
    monkeypatch.setattr(guard.Actor, "is_owner", property(lambda actor: not actor.agent))
    assert ask(inside.port, "GET", "/components").status == 200


def test_c1_other_sites_do_not_see_the_status_either(inside: Inside) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        assert ask(inside.port, "GET", "/status", headers).status == 403


def test_c1_the_hubs_log_tells_who_came_and_left(
    inside: Inside, sleeper: "subprocess.Popen[bytes]"
) -> None:
    def entries() -> list[tuple[str, str]]:
        log = ask(inside.socket, "GET", "/status").json["log"]
        assert all({"time", "level", "message"} <= set(entry) for entry in log)
        return [(e["message"], e["component"]) for e in log if "component" in e]

    before = len(entries())
    register(inside, "one")
    register(inside, "one")  # said again, it is no news
    register(inside, "two", pid=sleeper.pid)
    ask(inside.socket, "DELETE", "/components/one")
    sleeper.kill()
    wait_until(lambda: listed(inside) == [])
    assert entries()[before:] == [
        ("a component came", "one"),
        ("a component came", "two"),
        ("a component left", "one"),
        ("a component is gone", "two"),
    ]


def test_c1_the_log_keeps_the_last_thousand_entries_without_credentials() -> None:
    journal = Journal(logging.getLogger("test"))
    for number in range(1500):
        journal.note("info", f"entry {number}", name="amy", token="hush")
    entries = journal.entries()
    assert len(entries) == 1000
    assert [entries[0].message, entries[-1].message] == ["entry 500", "entry 1499"]
    assert entries[0].model_dump()["token"] == "[redacted]"
    assert entries[0].model_dump()["name"] == "amy"


@pytest.mark.parametrize("body", [None, b"", {}, {"timeout_seconds": 600, "force": True}], ids=repr)
def test_c2_a_hub_leaves_at_once(pen: Pen, body: Any) -> None:
    answer = ask(pen.home.socket(HUB), "POST", "/shutdown", body=body)
    assert answer.status == 202
    assert answer.json == {
        "message": answer.json["message"],
        "drain_timeout": 0,
        "pid": pen.pid,
    }
    wait_until(lambda: not alive(pen.pid))
    assert alive(pen.program("amy"))  # it waits for nobody, and ends nobody


@pytest.mark.parametrize(
    "body", [{"timeout_seconds": -1}, {"force": "x"}, {"more": 1}, [1], b"{"], ids=repr
)
def test_c2_what_makes_no_sense_ends_no_hub(inside: Inside, body: Any) -> None:
    answer = ask(inside.socket, "POST", "/shutdown", body=body)
    assert (answer.status, answer.json["error"]) == (400, "validation_error")
    assert not inside.hub.stop.is_set()


@pytest.mark.storm
def test_c2_hub_stop_and_restart_go_on_working(pen: Pen) -> None:
    before = pen.pid
    assert pen.cli("hub", "restart").code == 0
    assert pen.pid != before
    assert "hub stopped" in pen.cli("hub", "stop").out
    assert not alive(pen.pid)

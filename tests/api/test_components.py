"""Directors, views and bridges that tell the hub where they are."""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen import proc
from bullpen.paths import HUB
from tests.api.conftest import Answer, Inside, ask
from tests.conftest import wait_until
from tests.hub.conftest import Pen, kill


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
        "start_time": proc.start_time(os.getpid()),
        "registered": pytest.approx(time.time(), abs=60),
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

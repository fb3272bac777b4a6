"""A component as a real process: how it starts, what it answers, how it leaves."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bullpen.client import AsyncHub
from bullpen.client.call import Call
from bullpen.component import register as register_module
from bullpen.component import server
from bullpen.component.config import ComponentConfig
from bullpen.component.journal import Journal
from bullpen.component.ports import listen
from bullpen.component.process import ComponentProcess
from bullpen.component.register import Register
from bullpen.component.server import _Process
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import HUB, Home
from bullpen.model.component import CurrentTask, Registration
from tests.component.sample_process import Sample, is_listened_to, launch, running
from tests.hub.http.http import ask, raw
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FIELDS = {
    *("type", "interfaces", "name", "version", "state", "uptime_seconds", "home_id", "pid"),
    *("current_task", "config", "sandbox", "log"),
}
PUBLIC = {"type", "interfaces", "name", "version", "state", "uptime_seconds", "home_id"}


@pytest.fixture(scope="module")
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as found:
        yield found


@pytest.fixture
def sample(pen: Pen, port: int) -> Iterator[Sample]:
    with running(pen.home, "sam", port, api_token="hush-hush-hush") as made:
        made.wait_for("idle")
        yield made


def registered(pen: Pen) -> list[str]:
    return [one["name"] for one in ask(pen.home.socket(HUB), "GET", "/components").json]


# ── status ──


@pytest.mark.storm
def test_c1_the_status_of_a_component(sample: Sample, pen: Pen) -> None:
    status = sample.status()
    assert set(status) == FIELDS
    assert (status["type"], status["name"], status["state"]) == ("director", "sam", "idle")
    assert status["interfaces"] == ["statusable", "taskable", "configurable"]
    assert status["pid"] == sample.process.pid
    assert status["home_id"] == pen.home.id
    assert status["current_task"] is None
    assert status["sandbox"] is None
    assert status["config"]["port"] == sample.port
    assert {"time", "level", "message"} <= set(status["log"][0])
    assert [entry["message"] for entry in status["log"]][:1] == ["starting"]
    assert 0 < status["uptime_seconds"] < 60
    sample.ask("POST", "/begin", body=b"Fix  the\nbug " + b"x" * 200)
    task = sample.status()["current_task"]
    assert task["id"] == "t-1"
    assert task["prompt_preview"].startswith("Fix the bug xxx")
    assert len(task["prompt_preview"]) == 80
    assert sample.status()["state"] == "working"


@pytest.mark.storm
def test_c1_without_a_token_only_what_anybody_may_know(sample: Sample) -> None:
    answer = sample.ask("GET", "/status", token="")
    assert set(answer.json) == PUBLIC
    assert str(sample.process.pid).encode() not in answer.body
    assert sample.ask("GET", "/status", token="wrong").status == 401
    for method, target in (
        *(("GET", "/config"), ("PUT", "/config"), ("POST", "/shutdown"), ("POST", "/begin")),
        *(("GET", "/nowhere"), ("POST", "/status"), ("GET", "/greeting")),
    ):
        answer = sample.ask(method, target, token="")
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")
    handshake = (
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert raw(sample.port, handshake, 10).startswith(b"HTTP/1.1 401")
    assert sample.process.poll() is None


@pytest.mark.storm
def test_c1_a_secret_in_the_config_is_not_shown(sample: Sample) -> None:
    for target in ("/status", "/config"):
        answer = sample.ask("GET", target)
        assert answer.json["config"]["api_token"] == "[redacted]"
        assert b"hush-hush" not in answer.body


@pytest.mark.storm
def test_c1_a_component_registers_and_leaves_the_register(pen: Pen, port: int) -> None:
    with running(pen.home, "amber", port) as sample:
        wait_until(lambda: "amber" in registered(pen))
        (found,) = [
            one
            for one in ask(pen.home.socket(HUB), "GET", "/components").json
            if one["name"] == "amber"
        ]
        assert found["pid"] == sample.process.pid
        assert found["url"] == f"http://127.0.0.1:{port}"
        assert sample.ask("POST", "/shutdown").status == 202
        assert sample.wait_until_gone() == 0
        assert "amber" not in registered(pen)
    log = ask(pen.home.socket(HUB), "GET", "/status").json["log"]
    told = [entry["message"] for entry in log if entry.get("component") == "amber"]
    assert told == ["a component came", "a component left"]  # and was not found to be gone


@pytest.mark.storm
def test_c1_a_hub_with_an_empty_register_is_told_again(port: int) -> None:
    with made_pen() as pen:
        pen.start()
        with running(pen.home, "sam", port) as sample:
            wait_until(lambda: registered(pen) == ["sam"])
            pen.kill_hub()
            sample.wait_for("idle")
            for file in pen.root.glob("state.db*"):
                file.unlink()
            pen.start()
            wait_until(lambda: registered(pen) == ["sam"])


@pytest.mark.storm
def test_c1_a_component_does_not_need_the_hub(port: int) -> None:
    with made_pen() as pen:
        pen.start()
        pen.kill_hub()
        with running(pen.home, "sam", port) as sample:
            sample.wait_for("idle")
            assert sample.ask("POST", "/shutdown").status == 202
            assert sample.wait_until_gone() == 0


@pytest.mark.storm
def test_c1_a_name_that_another_process_has_stays_its_own(pen: Pen, port: int) -> None:
    with running(pen.home, "twin", port), reserved_port() as second:
        wait_until(lambda: "twin" in registered(pen))
        with running(pen.home, "twin", second) as other:
            wait_until(lambda: any("not registered" in e["message"] for e in other.status()["log"]))
            other.ask("POST", "/shutdown")
            other.wait_until_gone()
        assert "twin" in registered(pen)


class RefusingHub(AsyncHub):
    """Knows no component, and registers none."""

    refusals: list[str]

    async def do(self, call: Call[Any]) -> Any:
        if call.method == "GET":
            return []
        raise BullpenError(self.refusals.pop(0), kind=Kind.CONFLICT)


async def nothing() -> None:
    pass


def test_c1_a_register_that_refuses_again_and_again_is_told_of_once(pen: Pen) -> None:
    hub = RefusingHub(pen.home, start=False)
    hub.refusals = ["taken", "taken", "taken", "full", "taken"]
    registration = Registration(name="x", kind="view", url="http://127.0.0.1:1", pid=1, version="1")
    journal = Journal(logging.getLogger("test"))
    register = Register(hub, lambda: registration, journal, nothing)
    while hub.refusals:
        assert not asyncio.run(register._look())
    reasons = [entry.model_dump()["reason"] for entry in journal.entries()]
    assert reasons == ["taken", "full", "taken"]


class ReturningHub(AsyncHub):
    """Is away, then there, then away, then there."""

    answers: list[bool]

    async def do(self, call: Call[Any]) -> Any:
        if call.method == "GET" and not self.answers.pop(0):
            raise BullpenError("the hub is down", kind=Kind.UNAVAILABLE)
        return []


def test_c1_who_waits_for_the_hub_is_told_each_time_it_is_back(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "LOOK_AGAIN_SECONDS", 0.0)
    hub = ReturningHub(pen.home, start=False)
    hub.answers = [False, True, True, False, False, True, True]
    registration = Registration(name="x", kind="view", url="http://127.0.0.1:1", pid=1, version="1")
    left: list[int] = []

    async def returned() -> None:
        left.append(len(hub.answers))

    register = Register(hub, lambda: registration, Journal(logging.getLogger("test")), returned)
    with pytest.raises(IndexError):  # no more answers
        asyncio.run(register.run())
    assert left == [5, 1]


# ── stages ──


@pytest.mark.parametrize(
    ("config", "key", "said"),
    [
        ({"gretting": "x"}, "gretting", "did you mean greeting?"),
        ({"log_level": "loud"}, "log_level", "one of debug, info, warn, error"),
        ({"port": 99999}, "port", "at most 65535"),
    ],
)
@pytest.mark.few(1)
def test_c3_a_wrong_config_binds_no_port(
    pen: Pen, port: int, config: dict[str, Any], key: str, said: str
) -> None:
    sample = launch(pen.home, "wrong", **{"port": port, **config})
    assert sample.wait_until_gone() == 2
    line = next(line for line in sample.error_text.splitlines() if key in line and ":" in line)
    assert "wrong.yaml:" in line or "wrong.yaml has" in line
    assert said in sample.error_text
    assert "Traceback" not in sample.error_text
    assert not is_listened_to(port)


@pytest.mark.storm
def test_c3_a_port_in_use_names_who_has_it(pen: Pen, port: int, sample: Sample) -> None:
    second = launch(pen.home, "late", sample.port)
    assert second.wait_until_gone() == 1
    assert f"port {sample.port} is taken by pid {sample.process.pid}" in second.error_text
    assert "Traceback" not in second.error_text
    assert sample.status()["name"] == "sam"


def test_c3_the_port_answers_while_the_slow_part_is_under_way(
    pen: Pen, port: int, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with running(pen.home, "slow", port, gate=str(gate)) as sample:
        assert sample.status()["state"] == "starting"
        gate.touch()
        sample.wait_for("idle")


@pytest.mark.parametrize(
    ("problem", "reason"), [("the engine is too old", "the engine is too old"), ("bug", "ZeroDiv")]
)
@pytest.mark.few(1)
def test_c3_a_failed_start_is_a_state_with_its_reason(
    pen: Pen, port: int, problem: str, reason: str
) -> None:
    with running(pen.home, "failing", port, problem=problem) as sample:
        sample.wait_for("error")
        (entry,) = [one for one in sample.status()["log"] if one["level"] == "error"]
        assert reason in entry["message"]
        assert sample.ask("POST", "/shutdown").status == 202
        assert sample.wait_until_gone() == 0


@pytest.mark.storm
def test_c3_told_to_leave_while_it_starts(pen: Pen, port: int, tmp_path: Path) -> None:
    with running(pen.home, "slow", port, gate=str(tmp_path / "never")) as sample:
        assert sample.ask("POST", "/shutdown").status == 202
        assert sample.wait_until_gone() == 0


# ── shutdown ──


@pytest.mark.storm
def test_c2_an_idle_one_leaves(sample: Sample) -> None:
    answer = sample.ask("POST", "/shutdown")
    assert answer.status == 202
    assert answer.json["drain_timeout"] == 30
    assert answer.json["pid"] == sample.process.pid
    assert answer.json["message"]
    assert sample.wait_until_gone() == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("body", [None, b"", b"{}", b"  "], ids=repr)
def test_c2_a_working_one_refuses_an_empty_body(sample: Sample, body: bytes | None) -> None:
    sample.ask("POST", "/begin")
    answer = sample.ask("POST", "/shutdown", body=body)
    assert (answer.status, answer.json["error"]) == (409, "task_in_progress")
    assert answer.json["task_id"] == answer.json["details"]["task_id"] == "t-1"
    assert answer.json["details"]["retryable"] is True
    assert sample.status()["state"] == "working"


@pytest.mark.storm
def test_c2_a_running_task_is_waited_for(pen: Pen, port: int, tmp_path: Path) -> None:
    left = tmp_path / "left"
    with running(pen.home, "sam", port, left=str(left)) as sample:
        sample.wait_for("idle")
        sample.ask("POST", "/begin")
        answer = sample.ask("POST", "/shutdown", {"timeout_seconds": 600})
        assert (answer.status, answer.json["drain_timeout"]) == (202, 600)
        assert sample.status()["state"] == "draining"
        assert sample.ask("POST", "/begin").status == 503
        assert sample.process.poll() is None
        sample.ask("POST", "/finish")
        assert sample.wait_until_gone() == 0
        assert left.read_text() == "idle"


@pytest.mark.parametrize(("force", "said"), [(True, "idle"), (False, "busy")])
@pytest.mark.storm
def test_c2_at_the_end_of_the_drain(
    pen: Pen, port: int, tmp_path: Path, force: bool, said: str
) -> None:
    left = tmp_path / "left"
    with running(pen.home, "sam", port, left=str(left)) as sample:
        sample.wait_for("idle")
        sample.ask("POST", "/begin")
        began = time.monotonic()
        sample.ask("POST", "/shutdown", {"timeout_seconds": 0.3, "force": force})
        assert sample.wait_until_gone() == 0
        assert time.monotonic() - began >= 0.3
        assert left.read_text() == said


class HangingComponent(ComponentProcess):
    """Its own code does not come to an end when it leaves."""

    kind = "director"
    task = CurrentTask(id="t-1", started_at=1.0, prompt_preview="x")

    def current_task(self) -> CurrentTask | None:
        return self.task

    async def cancel(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        await asyncio.Event().wait()


def test_c2_a_component_whose_own_code_hangs_leaves_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story() -> list[str]:
        component = HangingComponent(Home(tmp_path), "sam", ComponentConfig())
        process = _Process(component, AsyncHub(Home(tmp_path), start=False), listener, owners)
        process.leave(0.0, force=True)
        async with asyncio.timeout(30):
            await component.life.over.wait()
        return [entry.message for entry in component.life.journal.entries()]

    monkeypatch.setattr(server, "CANCEL_SECONDS", 0.01)
    monkeypatch.setattr(server, "LEAVE_SECONDS", 0.02)
    (tmp_path / ".bullpen").write_text("")
    owners, theirs = socket.socketpair()
    with listen(0) as listener, owners, theirs:
        noted = asyncio.run(story())
    assert [note for note in noted if note.startswith("not ready")] == [
        "not ready to leave within 0.01 s",
        "not ready to leave within 0.02 s",
    ]


@pytest.mark.storm
def test_c2_a_later_word_counts(pen: Pen, port: int) -> None:
    def tell(seconds: float) -> None:
        body = {"timeout_seconds": seconds, "force": True}
        assert sample.ask("POST", "/shutdown", body).status == 202

    for soon in (0.5, 5, 50):  # a busy machine may be too late with the second word
        with running(pen.home, "sam", port) as sample:
            sample.wait_for("idle")
            sample.ask("POST", "/begin")
            told = time.monotonic()
            tell(soon)
            with contextlib.suppress(OSError):
                tell(3600)
            if time.monotonic() > told + soon:
                continue
            wait_until(lambda end=told + 2 * soon: time.monotonic() > end, 120)
            assert sample.status()["state"] == "draining"
            tell(0)
            assert sample.wait_until_gone() == 0
            return
    raise AssertionError("no second word came in time")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "body",
    [
        {"timeout_seconds": -1},
        {"timeout_seconds": "soon"},
        {"timeout_seconds": 1e9},
        {"force": "perhaps"},
        {"more": 1},
        [1],
        b"{",
        b'{"timeout_seconds": NaN}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body)[:40],
)
def test_c2_what_makes_no_sense_is_refused(sample: Sample, body: Any) -> None:
    answer = sample.ask("POST", "/shutdown", body)
    assert (answer.status, answer.json["error"]) == (400, "validation_error")
    assert set(answer.json) == {"error", "message", "details"}
    assert sample.status()["state"] == "idle"


@pytest.mark.storm
def test_c2_a_signal_drains_and_a_second_one_does_not(sample: Sample, pen: Pen) -> None:
    sample.ask("POST", "/begin")
    os.kill(sample.process.pid, signal.SIGTERM)
    sample.wait_for("draining")
    os.kill(sample.process.pid, signal.SIGTERM)
    assert sample.wait_until_gone() == 0
    assert "sam" not in registered(pen)


# ── config ──


@pytest.mark.storm
def test_c5_what_can_change_changes_and_the_rest_says_so(sample: Sample) -> None:
    shown = sample.ask("GET", "/config").json
    assert shown["config"]["greeting"] == "hello"
    assert shown["live"] == ["greeting", "log_level"]
    answer = sample.ask("PUT", "/config", {"greeting": "good day", "port": 1, "log_level": "debug"})
    assert answer.status == 200
    assert sorted(answer.json["changed"]) == ["greeting", "log_level"]
    assert list(answer.json["needs_restart"]) == ["port"]
    assert shown["file"] in answer.json["needs_restart"]["port"]
    assert answer.json["config"]["port"] == sample.port
    assert sample.ask("GET", "/greeting").json == {"greeting": "good day"}
    again = sample.ask("PUT", "/config", {"log_level": "debug"})
    assert (again.json["changed"], again.json["needs_restart"]) == ([], {})
    assert sample.status()["config"]["greeting"] == "good day"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"gretting": "x"}, "gretting: unknown key · did you mean greeting?"),
        ({"greeting": 7}, "greeting: 7 is no text"),
        ({"greeting": "x", "port": 0}, "port: 0 is too small"),
        ([], "no JSON object"),
        (b"{", "no JSON"),
        (b"", "no JSON"),
    ],
    ids=repr,
)
def test_c5_a_wrong_config_changes_nothing(sample: Sample, body: Any, said: str) -> None:
    answer = sample.ask("PUT", "/config", body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.json["error"]) == (400, "validation_error")
    assert said in answer.json["message"]
    assert sample.ask("GET", "/greeting").json == {"greeting": "hello"}


# ── who may ask, and how errors look ──


def test_t9_errors_of_all_sorts_have_one_format(sample: Sample) -> None:
    cases = [
        (sample.ask("GET", "/nowhere"), 404, "not_found", False),
        (sample.ask("DELETE", "/config"), 405, "method_not_allowed", False),
        (sample.ask("GET", "/fail"), 500, "internal_error", True),
        (sample.ask("GET", "/config", token="x"), 401, "unauthorized", False),
        (sample.ask("PUT", "/config", body=b"x" * (9 << 20)), 413, "too_large", False),
        (sample.ask("GET", "/status", headers={"Host": "evil.example"}), 403, "forbidden", False),
    ]
    for answer, status, error, is_retryable in cases:
        assert (answer.status, answer.json["error"]) == (status, error)
        assert set(answer.json) == {"error", "message", "details"}
        assert answer.json["details"]["retryable"] is is_retryable
        assert {"date", "bullpen-version", "cache-control"} <= set(answer.headers)
    long_head = b"GET /status HTTP/1.1\r\nX: " + b"y" * 200_000
    malformed = {b"what?\r\n\r\n": (400, "validation_error"), long_head: (431, "too_large")}
    for data, (status, error) in malformed.items():
        answered = raw(sample.port, data, 10)
        assert answered.startswith(b"HTTP/1.1 %d" % status)
        assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"] == error
    assert sample.status()["state"] == "idle"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
    ],
    ids=repr,
)
def test_b6_other_sites_are_refused(sample: Sample, headers: dict[str, str]) -> None:
    for method, target in (("GET", "/status"), ("POST", "/shutdown"), ("PUT", "/config")):
        answer = sample.ask(method, target, {}, headers=headers)
        assert (answer.status, answer.json["error"]) == (403, "forbidden")
    # The same requests from nowhere in particular are let in: it is these headers that count.
    assert sample.ask("GET", "/status").status == 200


def test_c1_the_log_is_json_and_holds_no_token(sample: Sample, pen: Pen) -> None:
    sample.ask("GET", "/fail")
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", sample.port)) as line:
        line.sendall(f"GET /x?{sample.token} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        line.recv(100)
    text = (pen.root / "logs" / "sam.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"starting", "ready", "a request failed"} <= {line["message"] for line in lines}
    assert {line["component"] for line in lines} == {"sam"}
    assert sample.token not in text


def test_x8_whoever_fills_the_port_does_not_keep_the_owner_out(tmp_path: Path) -> None:
    life = SimpleNamespace(journal=None)
    component: Any = SimpleNamespace(
        life=life, name="x", kind="view", home=Home(tmp_path), hub_is_back=nothing
    )
    owners, theirs = socket.socketpair()
    with listen(0) as listener, owners, theirs:
        hub = AsyncHub(Home(tmp_path), start=False)
        process = _Process(component, hub, listener, owners)
        assert process._owners.is_owners

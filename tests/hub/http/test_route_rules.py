"""What routes decide by themselves, asked without a server."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from bullpen.errors import BullpenError, Kind
from bullpen.hub.http.approvals import DAY_SECONDS, ask_permission
from bullpen.hub.http.gc import GcRequest
from bullpen.hub.http.guard import OWNER
from bullpen.hub.http.pods import stop_pod
from bullpen.hub.http.task_agents import _about_fields
from bullpen.hub.http.tasks import LIMITED_SECONDS, _failed, _is_answered
from bullpen.hub.http.terminal import _size
from bullpen.hub.quotas import Quotas
from bullpen.model.component import PublicStatus, Registration, Status
from bullpen.model.state import Exited, Idle
from bullpen.model.task import Error, Failed, Queued, Resting, Run, Task, Wish
from tests.hub.live_agents import live

# ── a permission ──


@dataclass
class WhenAsked:
    """Permissions that are decided at once: by the moment at which they were first asked."""

    hub_stops: asyncio.Event = field(default_factory=asyncio.Event)

    async def decide(self, _live: object, ask: str, body: bytes, asked: float) -> str:
        return json.dumps([ask, body.decode(), asked])


@dataclass
class NeverDecided(WhenAsked):
    async def decide(self, *_: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError


def request_of(*messages: dict[str, Any]) -> Request:
    """A request whose body has come, and then what else does."""
    coming = [{"type": "http.request", "body": b"{}", "more_body": False}, *messages]

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()
        return coming.pop(0)

    scope = {"type": "http", "method": "POST", "headers": [], "state": {"actor": OWNER}}
    return Request(scope, receive)


def hub_with(permissions: WhenAsked) -> Any:
    registry = SimpleNamespace(get=lambda name: live(name, Idle()))
    return SimpleNamespace(registry=registry, permissions=permissions, quotas=Quotas())


@pytest.mark.parametrize(
    ("ago", "counts"),
    [(None, 0.0), (5.0, 5.0), (-1e6, 0.0), (DAY_SECONDS + 3600, DAY_SECONDS)],
)
def test_q3_a_question_was_asked_within_a_day_and_not_in_the_future(
    ago: float | None, counts: float
) -> None:
    async def asked() -> str:
        at = None if ago is None else time.time() - ago
        return await ask_permission(hub_with(WhenAsked()), "amy", request_of(), "a" * 8, at)

    before = time.time()
    ask, body, at = json.loads(asyncio.run(asked()))
    assert (ask, body) == ("a" * 8, "{}")
    assert before - counts <= at <= time.time() - counts


def test_q3_who_left_is_answered_nothing_and_a_hub_that_leaves_says_so() -> None:
    async def left_alone() -> str:
        gone = request_of({"type": "http.disconnect"})
        return await ask_permission(hub_with(NeverDecided()), "amy", gone, "a" * 8)

    async def leaving() -> str:
        permissions = NeverDecided()
        permissions.hub_stops.set()
        return await ask_permission(hub_with(permissions), "amy", request_of(), "a" * 8)

    assert asyncio.run(left_alone()) == ""
    with pytest.raises(BullpenError) as raised:
        asyncio.run(leaving())
    assert raised.value.kind is Kind.UNAVAILABLE


# ── tasks ──


def failed(kind: Any, *runs: Run, message: str = "so") -> dict[str, object]:
    status = Failed(error=Error(type=kind, message=message))
    task = Task(
        id="t-000000000000", session_id="s", wish=Wish(prompt="x"), created=1.0, runs=runs
    ).model_copy(update={"status": status})
    error = _failed(task, status, "claude")
    assert error.message == f"task t-000000000000 failed: {message}"
    assert error.kind is Kind.COMMAND_FAILED
    return error.details


def run(number: int, is_retryable: bool) -> Run:
    return Run(number=number, began=1, ended=2, fault="engine_error", is_retryable=is_retryable)


def test_t9_which_failures_may_be_asked_for_again_at_once() -> None:
    assert failed("engine_error")["retryable"] is False
    assert failed("engine_error", run(1, True))["retryable"] is True
    assert failed("engine_error", run(1, True), run(2, False))["retryable"] is False
    assert failed("timeout")["error"] == "timeout"
    assert failed("budget", run(1, False))["error"] == "engine_error"


def test_t9_after_a_limit_it_is_said_when_to_come_again() -> None:
    told = failed("rate_limit")
    assert (told["error"], told["retry_after"]) == ("rate_limited", LIMITED_SECONDS)
    in_a_while = time.gmtime(time.time() + 2 * 3600)
    clock = f"{in_a_while.tm_hour % 12 or 12}:{in_a_while.tm_min:02}"
    half = "pm" if in_a_while.tm_hour >= 12 else "am"
    seconds = failed("rate_limit", message=f"resets {clock}{half} (UTC)")["retry_after"]
    assert isinstance(seconds, int)
    assert 3600 < seconds <= 2 * 3600 + 120


def test_t1_a_task_is_waited_for_until_its_turn_is_over() -> None:
    task = Task(id="t-000000000000", session_id="s", wish=Wish(prompt="x"), created=1.0)
    assert isinstance(task.status, Queued)
    assert not _is_answered(task)
    assert _is_answered(task.model_copy(update={"status": Resting(since=1.0)}))


# ── pods ──


@dataclass
class StoppingAll:
    """Stops whoever is asked for, but one."""

    refused: str = ""
    stopped: list[str] = field(default_factory=list)

    async def stop(self, name: str, _grace: float | None) -> None:
        await asyncio.sleep(0)
        if name == self.refused:
            raise BullpenError("its holder does not answer")
        self.stopped.append(name)


def pod_hub(stopper: StoppingAll, is_starting: bool = False) -> Any:
    async def cancel(_name: str) -> bool:
        return is_starting

    agents = [
        live("amy", Idle(), "red"),
        live("bob", Exited(code=0), "red"),
        live("cleo", Idle(), "blue"),
        live("dan", Idle(), "red"),
    ]
    pods = SimpleNamespace(cancel=cancel)
    return SimpleNamespace(registry=agents, stopper=stopper, pods=pods)


def test_p5_a_pod_is_stopped_with_those_who_run_and_no_others() -> None:
    stopper = StoppingAll()
    shown = asyncio.run(stop_pod(pod_hub(stopper), "red"))
    assert stopper.stopped == ["amy", "dan"]
    assert [one.name for one in shown] == ["amy", "bob", "dan"]


def test_p5_one_that_cannot_be_stopped_is_said_when_the_others_are() -> None:
    stopper = StoppingAll(refused="amy")
    with pytest.raises(BullpenError, match="does not answer"):
        asyncio.run(stop_pod(pod_hub(stopper), "red"))
    assert stopper.stopped == ["dan"]


def test_p5_a_pod_that_is_none_is_not_found_unless_it_is_being_started() -> None:
    with pytest.raises(BullpenError) as raised:
        asyncio.run(stop_pod(pod_hub(StoppingAll()), "green"))
    assert raised.value.kind is Kind.NOT_FOUND
    assert asyncio.run(stop_pod(pod_hub(StoppingAll(), is_starting=True), "green")) == []


# ── what is asked for, and what is shown ──


def test_h8_a_clean_up_spares_the_last_week_and_work_unless_it_is_asked_for() -> None:
    wanted = GcRequest()
    assert wanted.older_than_seconds == 7 * 86400
    assert not wanted.force
    assert not wanted.dry_run


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"rows": 1, "cols": 4096}', {"rows": 1, "cols": 4096}),
        ('{"rows": 0, "cols": 80}', None),
        ('{"rows": 24, "cols": 4097}', None),
        ('{"rows": 24}', None),
        ("x", None),
        (None, None),
    ],
)
def test_a3_a_size_is_of_a_terminal(text: str | None, size: dict[str, int] | None) -> None:
    assert _size(text) == size


def test_c4_what_is_wrong_with_a_body_is_told_by_its_keys_and_not_by_lines() -> None:
    problems = [{"key": "claude.timeout", "line": 3, "message": "is no duration"}]
    problems.append({"key": "", "line": 1, "message": "is empty"})
    error = BullpenError("3: x", hint="h", kind=Kind.INVALID, details={"problems": problems})
    told = _about_fields(error)
    assert told.message == "claude.timeout: is no duration; body: is empty"
    assert told.details["problems"] == ["claude.timeout: is no duration", "body: is empty"]
    assert (told.hint, told.kind) == ("h", Kind.INVALID)
    other = BullpenError("x")
    assert _about_fields(other) is other


def test_c1_of_a_status_only_what_anybody_may_know_is_public() -> None:
    status = Status(
        type="hub",
        interfaces=("statusable",),
        name="hub",
        version="1",
        state="idle",
        uptime_seconds=1,
        home_id="h",
        pid=7,
        current_task=None,
        config={"port": 1},
        sandbox=None,
        log=(),
    )
    assert type(status.public()) is PublicStatus
    assert status.public().model_dump().keys() == {
        *("type", "interfaces", "name", "version", "state", "uptime_seconds", "home_id")
    }


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:0", "http://10.0.0.1:1"),
        *("http://127.0.0.1:1?x", "http://127.0.0.1:1#", "http://a@127.0.0.1:1", "http://\x7f:1"),
    ],
)
def test_b5_a_component_serves_on_this_machine_in_the_open(url: str) -> None:
    fields = {"name": "x", "kind": "view", "pid": 1, "version": "1"}
    assert Registration(**fields, url="http://[::1]:1/x").url == "http://[::1]:1/x"
    with pytest.raises(ValueError, match="of this machine"):
        Registration(**fields, url=url)

"""Looking again before acting: what was true when something was begun may not be true any more.

`observe_now` changes what is known of an agent before anybody is told: the moment between a
state and its event, in which timers may be due.
"""

import asyncio
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.hub.agents.launched_reviewer import write_reviewer
from bullpen.hub.agents.observe import observe_now, state_draft
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.sessions import LaunchEnv, create
from bullpen.hub.messages import heartbeat
from bullpen.hub.permissions.reviewer import Reviewed
from bullpen.hub.usage import rate_limits
from bullpen.model.agent import Agent
from bullpen.model.approval import ToolRequest
from bullpen.model.event import Event
from bullpen.model.fold import fold
from bullpen.model.review import Verdict
from bullpen.model.role import Heartbeat, Permissions, ReviewerSettings, Role
from bullpen.model.state import Blocked, HolderGone, Idle, Lost, State, Working
from tests.hub.parts import Parts, in_parts, tasks, told, until
from tests.hub.stand_ins import ENGINE, ToldEngine


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


# ── heartbeats ──


# An agent is put in as idle since 1970: a heartbeat is due at once.
def beat(seconds: float, condition: str | None = None) -> Heartbeat:
    return Heartbeat(
        idle_timeout=timedelta(seconds=seconds), message="are you there?", condition=condition
    )


@pytest.mark.parametrize("state", [Working(), Blocked(on="question"), Idle(limited_until=9e9)])
def test_g5_due_at_one_that_got_busy_meanwhile_there_is_no_message(state: State) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), heartbeat=beat(1))
        await parts.hub.heartbeats.load()
        observe_now(live, told(live, state))
        await until(lambda: not tasks("heart of amy"))
        assert await parts.inbox() == []

    in_parts(main)


def test_g5_busy_while_its_condition_was_asked_there_is_no_message() -> None:
    async def main(parts: Parts) -> None:
        root = parts.home.root
        waiting = f"touch {root}/asked; while ! test -e {root}/go; do sleep 0.01; done"
        live = parts.put(state=Idle(), heartbeat=beat(1, waiting))
        create(parts.home, live.agent, LaunchEnv(env={"PATH": "/usr/bin:/bin"}))
        await parts.hub.heartbeats.load()
        await until((root / "asked").exists)
        observe_now(live, told(live, Working()))
        (root / "go").touch()
        await until(lambda: not tasks("heart of amy"))
        assert await parts.inbox() == []

    in_parts(main)


def test_g5_an_idle_period_has_one_message_and_the_next_one_has_another() -> None:
    async def main(parts: Parts) -> None:
        parts.put(state=Idle(), heartbeat=beat(1))
        another = heartbeat.Heartbeats(
            parts.hub.context, parts.registry, parts.hub.delivery, parts.hub.background
        )
        for beats in (parts.hub.heartbeats, another):  # of a hub that comes to the same moment
            await beats.load()
            await until(lambda: not tasks("heart of amy"))
        assert [one.sender for one in await parts.inbox()] == ["bullpen"]
        await parts.tell("amy", Working(), at=4.0)
        await parts.tell("amy", Idle(), at=5.0)
        await until(lambda: parts.hub.messages.unread("amy") == 2)

    in_parts(main)


def test_g5_not_before_its_time_and_not_to_one_without() -> None:
    async def main(parts: Parts) -> None:
        others = ("amy", "bob", "cleo", "dan")
        parts.put("amy", Idle(), heartbeat=beat(time.time() + 3600))
        parts.put("bob", Idle())
        parts.put("cleo", Working(), heartbeat=beat(1))
        parts.put("dan", Idle(limited_until=9e9), heartbeat=beat(1))
        parts.put("eve", Idle(), heartbeat=beat(1))
        await parts.hub.heartbeats.load()
        assert [name for name in others if tasks(f"heart of {name}")] == ["amy"]
        await until(lambda: parts.hub.messages.unread("eve") == 1)
        assert [parts.hub.messages.unread(name) for name in others] == [0, 0, 0, 0]

    in_parts(main)


def test_g5_a_period_that_ends_ends_its_timer() -> None:
    async def main(parts: Parts) -> None:
        parts.put(state=Idle(), heartbeat=beat(time.time() + 3600))
        await parts.hub.heartbeats.load()
        assert len(tasks("heart of amy")) == 1
        await parts.tell("amy", Working())
        await until(lambda: not tasks("heart of amy"))
        await parts.tell("amy", Idle())
        await until(lambda: len(tasks("heart of amy")) == 1)

    in_parts(main)


def test_g5_what_is_met_means_a_message() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), heartbeat=beat(1, "true"))
        create(parts.home, live.agent, LaunchEnv(env={"PATH": "/usr/bin:/bin"}))
        await parts.hub.heartbeats.load()
        await until(lambda: not tasks("heart of amy"))
        assert len(await parts.inbox()) == 1

    in_parts(main)


@pytest.mark.parametrize("condition", ["exit 3", "sleep 100"])
@pytest.mark.slow
def test_g5_what_is_not_met_or_takes_too_long_means_no_message(
    condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "CONDITION_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "LEAST_AGAIN_SECONDS", 0.01)
    asked = tmp_path / "asked"

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), heartbeat=beat(1, f"echo x >> {asked}; {condition}"))
        create(parts.home, live.agent, LaunchEnv(env={"PATH": "/usr/bin:/bin"}))
        await parts.hub.heartbeats.load()
        await until(lambda: asked.exists() and asked.read_text().count("x") >= 2)
        assert await parts.inbox() == []

    in_parts(main)


@pytest.mark.slow
def test_g5_a_condition_is_not_asked_more_often_than_the_least_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heartbeat.LEAST_AGAIN_SECONDS == 30
    monkeypatch.setattr(heartbeat, "LEAST_AGAIN_SECONDS", 0.5)
    times = tmp_path / "times"

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), heartbeat=beat(0.01, f"date +%s.%N >> {times}; exit 3"))
        create(parts.home, live.agent, LaunchEnv(env={"PATH": "/usr/bin:/bin"}))
        await parts.hub.heartbeats.load()
        await until(lambda: times.exists() and times.read_text().count("\n") >= 2)
        first, second, *_ = map(float, times.read_text().split())
        assert second - first >= 0.4

    in_parts(main)


# ── rate limits ──


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "JITTER_SECONDS", 0.0)


def stated(parts: Parts, name: str = "amy") -> Event:
    """The event of its present state, as it is told of."""
    draft = state_draft(parts.registry.get(name))
    return Event(1, draft.time, draft.kind, draft.agent, draft.data)


@pytest.mark.parametrize("state", [Working(), Idle(), Idle(limited_until=9e9), Lost(reason="x")])
def test_o3_one_that_does_something_else_by_now_is_not_woken_up(
    state: State, at_once: None
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(limited_until=time.time()))
        parts.hub.rate_limits.notice([stated(parts)])
        if isinstance(state, Lost):
            live.view = live.view.model_copy(update={"state": state})
        else:
            observe_now(live, told(live, state))
        await until(lambda: not tasks("parked amy"))
        assert await parts.inbox() == []
        assert await parts.events("agent.resumed") == []
        assert live.view.state == state

    in_parts(main)


def test_o3_at_the_reset_it_is_told_to_go_on_once_by_whichever_hub(at_once: None) -> None:
    async def main(parts: Parts) -> None:
        until_then = time.time()
        live = parts.put(state=Idle(limited_until=until_then))
        before = live.view
        await parts.hub.rate_limits.load()
        await until(lambda: not tasks("parked amy"))
        assert live.view.state == Idle()
        live.view = before  # the hub was killed before it could say that the wait was over
        await parts.hub.rate_limits.load()
        await until(lambda: not tasks("parked amy"))
        assert [one.text for one in await parts.inbox()] == [rate_limits.GO_ON]
        (event,) = await parts.events("agent.resumed")
        assert event.data == {"run": "run-amy", "until": until_then}

    in_parts(main)


def test_o3_it_is_not_woken_up_before_the_reset_and_a_later_one_counts(at_once: None) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(limited_until=time.time() + 3600))
        await parts.hub.rate_limits.load()
        (first,) = tasks("parked amy")
        parts.hub.rate_limits.notice([stated(parts)])
        assert tasks("parked amy") == [first]  # the same wait
        now = time.time()
        await parts.tell("amy", Idle(limited_until=now))
        await until(lambda: parts.hub.messages.unread("amy") == 1)
        await until(first.cancelled)
        await until(lambda: live.view.state == Idle())

    in_parts(main)


def failed(**fields: Any) -> dict[str, Any]:
    return {"hook_event_name": "StopFailure", "error": "rate_limit", **fields}


def test_o3_waits_grow_within_a_run_and_begin_anew_after_a_turn_that_ended_well() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        for _ in range(2):
            await parts.hub.rate_limits.hooked(live, failed())
        await parts.hub.rate_limits.hooked(live, {"hook_event_name": "Stop"})
        await parts.hub.rate_limits.hooked(live, failed())
        found = await parts.events("agent.parked", "amy")
        assert [event.data["attempt"] for event in found] == [1, 2, 1]
        assert live.view.state == Idle(limited_until=found[-1].data["until"])
        assert len(tasks("parked amy")) == 1

    in_parts(main)


@pytest.mark.parametrize(("of_run", "attempt"), [("run-amy", 2), ("run-before", 1)])
def test_o3_another_hub_counts_on_for_the_same_run(of_run: str, attempt: int) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working(), run=of_run)
        await parts.hub.rate_limits.hooked(live, failed())
        live.agent = live.agent.model_copy(update={"run": "run-amy"})
        another = rate_limits.RateLimits(
            parts.store,
            parts.registry,
            parts.hub.observer,
            parts.hub.delivery,
            parts.hub.background,
        )
        await another.load()
        await another.hooked(live, failed())
        found = await parts.events("agent.parked", "amy")
        assert found[-1].data["attempt"] == attempt

    in_parts(main)


def test_o3_the_limit_of_one_that_has_ended_parks_nobody() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        live.view = live.view.model_copy(update={"state": Lost(reason="x")})
        await parts.hub.rate_limits.hooked(live, failed())
        assert await parts.events("agent.parked") == []
        assert tasks("parked amy") == []

    in_parts(main)


# ── reviews ──


class HeldReviewer:
    """Says its verdict when the test lets it."""

    def __init__(self, word: Any) -> None:
        self.word = word
        self.is_asked = asyncio.Event()
        self.may_say = asyncio.Event()

    async def review(
        self, agent: Agent, request: ToolRequest, settings: ReviewerSettings
    ) -> Reviewed:
        self.is_asked.set()
        await self.may_say.wait()
        return Reviewed(Verdict(word=self.word, reason="so it is"), 0.1)


BODY = json.dumps({"tool_name": "Bash", "tool_input": {"command": "make"}}).encode()


def put_reviewed(parts: Parts, instructions: str | None = "ALLOW: make") -> LiveAgent:
    """An agent that works; launched with that reviewer, or with none."""
    permissions = Permissions(agent=ReviewerSettings(instructions=instructions))
    role = Role(name="sleeper", permissions=permissions)
    parts.home.private("amy").mkdir(parents=True)
    write_reviewer(parts.home, "amy", role)
    return parts.put(state=Working(), role=role.name)


@pytest.mark.parametrize("word", ["ALLOW", "DENY", "ASK_USER"])
@pytest.mark.parametrize("state", [Idle(), Working(tool="Bash")])
def test_q2_a_review_that_comes_after_the_answer_in_the_terminal_decides_nothing(
    word: str, state: State
) -> None:
    async def main(parts: Parts) -> None:
        live = put_reviewed(parts)
        permissions, held = parts.hub.permissions, HeldReviewer(word)
        permissions.reviewer = held  # type: ignore[assignment]
        asking = asyncio.create_task(permissions.decide(live, "a1", BODY, time.time()))
        await held.is_asked.wait()
        assert live.view.state == Working(doing="review", tool="Bash")
        await parts.tell("amy", state)
        held.may_say.set()
        assert await asking == ""
        assert permissions.approvals.waiting() == []
        assert [one.state.status for one in permissions.approvals] == ["closed"]
        assert live.view.state == state

    in_parts(main)


@pytest.mark.parametrize("word", ["ALLOW", "DENY"])
def test_q2_a_review_in_time_decides(word: str) -> None:
    async def main(parts: Parts) -> None:
        live = put_reviewed(parts)
        permissions, held = parts.hub.permissions, HeldReviewer(word)
        permissions.reviewer = held  # type: ignore[assignment]
        held.may_say.set()
        answer = await permissions.decide(live, "a1", BODY, time.time())
        decision = json.loads(answer)["hookSpecificOutput"]["decision"]
        assert decision["behavior"] == word.lower()
        assert isinstance(live.view.state, Working)
        (event,) = await parts.events("permission.reviewed")
        assert event.data["verdict"] == word
        assert [one.state.status for one in permissions.approvals] == ["answered"]

    in_parts(main)


def test_q2_one_that_ended_while_it_was_reviewed_gets_no_answer() -> None:
    async def main(parts: Parts) -> None:
        live = put_reviewed(parts)
        permissions, held = parts.hub.permissions, HeldReviewer("ALLOW")
        permissions.reviewer = held  # type: ignore[assignment]
        asking = asyncio.create_task(permissions.decide(live, "a1", BODY, time.time()))
        await held.is_asked.wait()
        live.view = fold(live.view, HolderGone(at=time.time(), reason="x"))
        held.may_say.set()
        assert await asking == ""
        assert [one.state.status for one in permissions.approvals] == ["closed"]

    in_parts(main)


class SayingReviewer:
    """Says at once what the test says."""

    def __init__(self, word: Any, reason: str = "so it is") -> None:
        self.verdict = Verdict(word=word, reason=reason)
        self.asked = 0

    async def review(
        self, agent: Agent, request: ToolRequest, settings: ReviewerSettings
    ) -> Reviewed:
        self.asked += 1
        return Reviewed(self.verdict, 0.1)


def test_q2_what_the_reviewer_repeats_of_a_credential_is_not_kept() -> None:
    key = "ghp_" + "Ab1" * 12

    async def main(parts: Parts) -> None:
        live = put_reviewed(parts)
        permissions = parts.hub.permissions
        permissions.reviewer = SayingReviewer("DENY", f"sends {key}")  # type: ignore[assignment]
        answer = await permissions.decide(live, "a1", BODY, time.time())
        (event,) = await parts.events("permission.reviewed")
        assert key not in answer
        assert key not in event.data["reason"]
        assert event.data["reason"].startswith("sends ")

    in_parts(main)


@pytest.mark.parametrize(("is_on", "count"), [(True, 1), (False, 0)])
def test_q2_a_role_without_instructions_has_no_reviewer(is_on: bool, count: int) -> None:
    async def main(parts: Parts) -> None:
        live = put_reviewed(parts, "ALLOW: make" if is_on else None)
        permissions, reviewer = parts.hub.permissions, SayingReviewer("ASK_USER", "perhaps")
        permissions.reviewer = reviewer  # type: ignore[assignment]
        asking = asyncio.create_task(permissions.decide(live, "a1", BODY, time.time()))
        await until(lambda: bool(permissions.approvals.for_person()))
        assert reviewer.asked == count
        assert permissions.approvals.waiting()[0].review == ("perhaps" if is_on else "")
        await until(lambda: live.view.state == Blocked(on="permission", tool="Bash"))
        asking.cancel()

    in_parts(main)


@pytest.mark.parametrize("word", ["ALLOW", "DENY"])
def test_q3_while_a_person_is_asked_a_review_of_another_call_does_not_hide_it(word: str) -> None:
    async def main(parts: Parts) -> None:
        live = put_reviewed(parts)
        permissions = parts.hub.permissions
        permissions.reviewer = SayingReviewer("ASK_USER")  # type: ignore[assignment]
        asking = asyncio.create_task(permissions.decide(live, "a1", BODY, time.time()))
        await until(lambda: bool(permissions.approvals.for_person()))
        held = HeldReviewer(word)
        permissions.reviewer = held  # type: ignore[assignment]
        other = asyncio.create_task(permissions.decide(live, "a2", BODY, time.time()))
        await held.is_asked.wait()
        assert live.view.state == Blocked(on="permission", tool="Bash")
        held.may_say.set()
        assert word.lower() in await other
        assert live.view.state == Blocked(on="permission", tool="Bash")
        asking.cancel()

    in_parts(main)

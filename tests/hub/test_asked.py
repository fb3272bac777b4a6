"""Permissions and approvals on the parts of a hub: whose they are, who is first, what is kept."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError
from bullpen.hub import approvals, permissions
from bullpen.hub.approvals import Approvals
from bullpen.hub.permissions import Given
from bullpen.hub.record import observe_now
from bullpen.hub.registry import Live
from bullpen.hub.rules import load_rules
from bullpen.model.approval import Approval, Request
from bullpen.model.state import Blocked, Gone, Idle, Working, fold
from tests.hub.parts_by_hand import ENGINE, Parts, ToldEngine, run, told, until

ASKS = Blocked(on="permission", tool="Bash")
KEY = "ghp_" + "Ab1" * 12


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


@pytest.fixture
def unwaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that is not back at once does not come back."""
    monkeypatch.setattr(approvals, "BACK_SECONDS", 0.0)


def body(command: str = "make", tool: str = "Bash") -> bytes:
    return json.dumps({"tool_name": tool, "tool_input": {"command": command}}).encode()


def ask(
    parts: Parts, live: Live, name: str = "a1", command: str = "make", **fields: Any
) -> "asyncio.Task[str]":
    """A hook that asks and waits."""
    asked = fields.pop("asked", time.time())
    deciding = parts.hub.permissions.decide(live, name, body(command, **fields), asked)
    return asyncio.create_task(deciding, name=f"hook {name}")


async def asked(parts: Parts, count: int = 1) -> list[Approval]:
    """Those that wait, as soon as there are so many with hooks."""
    found = parts.hub.permissions.approvals
    await until(
        lambda: sum(one.state.reachable for one in found.waiting()) == count  # type: ignore[union-attr]
    )
    return found.waiting()


def behaviour(answer: str) -> str:
    return str(json.loads(answer)["hookSpecificOutput"]["decision"]["behavior"])


# ── whose they are ──


def test_q4_only_the_questions_of_its_own_run_block_an_agent() -> None:
    async def main(parts: Parts) -> None:
        amy, bob = parts.put("amy", Working()), parts.put("bob", Working())
        first, second = ask(parts, amy, "a1"), ask(parts, amy, "a2", "ls")
        other = ask(parts, bob, "b1")
        one, _, _ = await asked(parts, 3)
        answered, found = parts.hub.permissions.answer, parts.hub.permissions.approvals
        assert [found.open_of(each) for each in ("run-amy", "run-bob", "r")] == [2, 1, 0]
        await answered(one.id, Given(decision="allow"))
        assert behaviour(await first) == "allow"
        assert amy.view.state == ASKS  # the second still waits
        await answered(2 if one.id == 1 else 1, Given(decision="deny"))
        assert behaviour(await second) == "deny"
        assert amy.view.state == Working(doing="thinking")  # whatever bob waits for
        assert bob.view.state == ASKS
        assert not other.done()

    run(main)


def test_q4_an_agent_that_goes_on_closes_its_own_question_and_nobody_elses() -> None:
    async def main(parts: Parts) -> None:
        amy, bob = parts.put("amy", Working()), parts.put("bob", Working())
        mine, other = ask(parts, amy, "a1"), ask(parts, bob, "b1")
        await asked(parts, 2)
        await parts.tell("amy", Working(tool="Bash"))
        assert await mine == ""
        assert [one.agent for one in parts.hub.permissions.approvals.waiting()] == ["bob"]
        assert bob.view.state == ASKS
        assert not other.done()
        (ended,) = await parts.events("approval.answered")
        assert (ended.agent, ended.data["why"]) == ("amy", "answered in the terminal")

    run(main)


def test_q4_a_question_of_an_earlier_run_is_closed_and_says_nothing_of_this_one() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        asking = ask(parts, live)
        await asked(parts)
        live.agent = live.agent.model_copy(update={"run": "r2"})
        await parts.tell("amy", Idle())
        assert await asking == ""
        assert live.view.state == Idle()
        (ended,) = await parts.events("approval.answered")
        assert ended.data["why"] == "the agent ended"
        assert not [item for item in live.view.evidence if item.says.startswith("#1 the agent")]

    run(main)


def test_q4_a_hook_that_comes_back_to_a_dialog_that_is_gone_does_not_wait(
    unwaited: None,
) -> None:
    """Nobody was told of it: the state came in the same moment."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        first = ask(parts, live)
        await asked(parts)
        first.cancel()
        await until(first.done)
        observe_now(live, told(live, Idle()))
        assert await ask(parts, live) == ""
        (ended,) = await parts.events("approval.answered")
        assert ended.data["why"] == "the turn ended"

    run(main)


# ── asked ──


def test_q4_the_same_question_asked_again_is_the_same_one() -> None:
    """By a hook that comes back after a restart, or lost its connection."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        hooks = [ask(parts, live) for _ in range(3)]
        (one,) = await asked(parts)
        await parts.hub.permissions.answer(one.id, Given(decision="allow"))
        assert [behaviour(answer) for answer in await asyncio.gather(*hooks)] == ["allow"] * 3
        assert behaviour(await ask(parts, live)) == "allow"  # it did not hear the answer
        assert live.view.state == Working(tool="Bash")
        assert len(await parts.events("approval.asked")) == 1

    run(main)


def test_q4_as_many_as_may_be_open_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "MOST_OPEN", 2)

    async def main(parts: Parts) -> None:
        amy, bob = parts.put("amy", Working()), parts.put("bob", Working())
        for number in range(2):
            ask(parts, amy, f"a{number}")
            await asked(parts, number + 1)
        assert await ask(parts, amy, "a2") == ""
        ask(parts, bob, "b0")
        await asked(parts, 3)

    run(main)


def test_q3_a_question_with_more_than_two_answers_is_for_the_terminal(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        question = sorted(engine.questions)[0]
        assert await ask(parts, live, tool=question) == ""
        assert live.view.state == Blocked(on="question", tool=question)
        assert len(await parts.events("approval.asked")) == 1

    run(main)


def test_q3_one_that_has_ended_asks_for_nothing() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        live.view = fold(live.view, Gone(at=time.time(), reason="x"))
        assert await ask(parts, live) == ""
        assert await parts.events("approval.asked") == []
        assert await parts.events("hook.received") == []

    run(main)


@pytest.mark.parametrize("left", [-5.0, 0.05])
def test_q4_nobody_answers_in_time_counted_from_the_question(left: float) -> None:
    async def main(parts: Parts) -> None:
        limit = timedelta(seconds=3600)
        parts.supervisor.settings = parts.supervisor.settings.model_copy(
            update={"ask_timeout": limit}
        )
        live = parts.put(state=Working())
        began = time.time() - 3600 + left  # the hook began to ask an earlier hub
        answer = await ask(parts, live, asked=began)
        assert behaviour(answer) == "deny"
        assert "nobody answered within 1h" in answer
        (ended,) = await parts.events("approval.answered")
        assert (ended.data["decision"], ended.data["by"]) == ("deny", "ask_timeout")

    run(main)


# ── answered ──


def test_q4_the_first_answer_wins_and_may_be_repeated() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        asking = ask(parts, live)
        (one,) = await asked(parts)
        answer = parts.hub.permissions.answer
        first = Given(decision="deny", reason="no", answer="mine")
        ended = await answer(one.id, first)
        assert await answer(one.id, first) == ended
        with pytest.raises(BullpenError, match="was decided before: denied by you"):
            await answer(one.id, Given(decision="allow", answer="another"))
        assert behaviour(await asking) == "deny"
        assert len(await parts.events("approval.answered")) == 1

    run(main)


def test_q4_the_state_is_said_before_the_engine_hears_the_answer() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        states = []

        async def hook() -> None:
            await parts.hub.permissions.decide(live, "a1", body(), time.time())
            states.append(live.view.state)

        asking = asyncio.create_task(hook())
        (one,) = await asked(parts)
        await parts.hub.permissions.answer(one.id, Given(decision="allow"))
        await asking
        assert states == [Working(tool="Bash")]

    run(main)


def test_q4_one_whose_hook_is_gone_is_for_the_terminal_alone(unwaited: None) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        asking = ask(parts, live)
        (one,) = await asked(parts)
        asking.cancel()
        await until(asking.done)
        found = parts.hub.permissions.approvals
        assert not found.get(one.id).state.reachable  # type: ignore[union-attr]
        with pytest.raises(BullpenError, match="only be answered in amy's terminal"):
            await parts.hub.permissions.answer(one.id, Given(decision="allow"))
        assert await parts.events("approval.answered") == []

    run(main)


def test_q4_a_hook_that_leaves_shows_that_it_was_decided(unwaited: None) -> None:
    """In a headless run the file says nothing of a dialog: the hook that waits is the proof."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        live.view = live.view.model_copy(update={"filed": Working(), "filed_at": 4.0})
        asking = ask(parts, live)
        await asked(parts)
        await parts.tell("amy", Working(tool="Read"))  # another tool goes on
        (one,) = parts.hub.permissions.approvals.waiting()
        asking.cancel()
        await until(lambda: not parts.hub.permissions.approvals.waiting())
        (ended,) = await parts.events("approval.answered")
        assert (ended.data["id"], ended.data["why"]) == (one.id, "answered in the terminal")

    run(main)


# ── the next hub ──


def test_q4_another_hub_finds_those_that_wait_and_numbers_on(unwaited: None) -> None:
    async def main(parts: Parts) -> None:
        amy, bob = parts.put("amy", Working()), parts.put("bob", Working())
        first, _ = ask(parts, amy), ask(parts, bob, "b1")
        await asked(parts, 2)
        number = {one.agent: one.id for one in parts.hub.permissions.approvals}
        await parts.hub.permissions.answer(number["amy"], Given(decision="allow"))
        await first
        another = Approvals(parts.supervisor)
        await another.load()
        assert [(one.id, one.agent) for one in another.waiting()] == [(number["bob"], "bob")]
        assert another.get(number["amy"]) == parts.hub.permissions.approvals.get(number["amy"])
        request = Request(tool="Bash", input={"command": "ls"})
        new = await another.ask(amy, "a9", request, time.time(), "")
        assert new.id == 3

    run(main)


def test_q4_another_hub_closes_those_that_were_decided_while_none_was_there(
    unwaited: None,
) -> None:
    async def main(parts: Parts) -> None:
        amy = parts.put("amy", Working())
        bob = parts.put("bob", Working())
        for live in (amy, bob):
            ask(parts, live, live.agent.name)
        await asked(parts, 2)
        parts.store.on_commit = None
        await parts.tell("amy", Idle())
        parts.registry.drop("bob")
        another = Approvals(parts.supervisor)
        await another.load()
        assert another.waiting() == []
        found = {
            event.agent: event.data["why"] for event in await parts.events("approval.answered")
        }
        assert found == {"amy": "the turn ended", "bob": "the agent ended"}

    run(main)


def test_q4_another_hub_looks_again_when_a_hook_has_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At first it may still come, and is the proof that somebody has to answer."""
    monkeypatch.setattr(approvals, "BACK_SECONDS", 0.5)

    async def main(parts: Parts) -> None:
        amy = parts.put("amy", Working())
        ask(parts, amy)
        await asked(parts)
        parts.store.on_commit = None
        await parts.tell("amy", Idle())
        amy.view = amy.view.model_copy(update={"filed": Working(), "filed_at": 0.0})
        another = Approvals(parts.supervisor)
        await another.load()
        await until(lambda: another.waiting() == [])

    run(main)


def test_q4_one_that_a_hook_waits_for_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "KEPT", 0)

    async def main(parts: Parts) -> None:
        asking = ask(parts, parts.put(state=Working()))
        (one,) = await asked(parts)
        await parts.hub.permissions.approvals.answer(one.id, "allow")
        assert behaviour(await asking) == "allow"

    run(main)


def test_q4_of_those_that_ended_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "KEPT", 2)

    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        for number in range(4):
            asking = ask(parts, live, f"a{number}")
            (one,) = await asked(parts)
            await parts.hub.permissions.answer(one.id, Given(decision="allow"))
            await asking
        assert [one.id for one in parts.hub.permissions.approvals] == [3, 4]

    run(main)


# ── what is kept of it ──


def test_q4_credentials_are_neither_kept_nor_made_a_rule() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        ask(parts, live, "a1", f"login {KEY}")
        (one,) = await asked(parts)
        assert KEY not in one.text
        assert (one.rule.rule, "credential" in one.rule.why_not) == ("", True)
        assert KEY not in json.dumps([event.data for event in await parts.events("approval.asked")])
        with pytest.raises(BullpenError, match="cannot be allowed for good"):
            await parts.hub.permissions.answer(one.id, Given(decision="allow", always=True))
        assert parts.hub.permissions.approvals.waiting()

    run(main)


@pytest.mark.parametrize("field", ["always", "role"])
def test_q4_a_rule_is_made_by_allowing_only(field: str) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        ask(parts, live)
        (one,) = await asked(parts)
        with pytest.raises(BullpenError, match="only made by allowing"):
            await parts.hub.permissions.answer(
                one.id, Given.model_validate({"decision": "deny", field: True})
            )
        assert parts.hub.permissions.approvals.waiting()

    run(main)


def test_q4_a_rule_for_good_is_kept_for_the_agent_and_in_its_role() -> None:
    async def main(parts: Parts) -> None:
        role = {"name": "sleeper", "agent_type": "command", "command": ["/bin/true"]}
        path = parts.home.roles / "sleeper.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in role.items()))
        path.chmod(0o640)
        live = parts.put(state=Working(), role="sleeper")
        parts.home.session("amy").mkdir(parents=True)
        asking = ask(parts, live, command="make all")
        (one,) = await asked(parts)
        await parts.hub.permissions.answer(one.id, Given(decision="allow", role=True))
        assert "addRules" in await asking
        assert load_rules(parts.home.session("amy")) == ("Bash(make all)",)
        assert "Bash(make all)" in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o640

    run(main)


def test_q4_an_answer_that_came_too_late_makes_no_rule() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        parts.home.session("amy").mkdir(parents=True)
        ask(parts, live)
        (one,) = await asked(parts)
        await parts.hub.permissions.answer(one.id, Given(decision="deny"))
        with pytest.raises(BullpenError, match="decided before"):
            await parts.hub.permissions.answer(one.id, Given(decision="allow", always=True))
        assert load_rules(parts.home.session("amy")) == ()

    run(main)


def test_q4_a_rule_for_a_directory_is_none() -> None:
    async def main(parts: Parts) -> None:
        found = parts.hub.permissions.approvals
        live = parts.put(state=Working())
        rules = []
        for path in (parts.home.root, parts.home.root / "file"):
            request = Request(tool="Read", input={"file_path": str(path)})
            rules.append((await found.ask(live, path.name, request, time.time(), "")).rule.rule)
        assert rules == ["", f"Read(/{parts.home.root}/file)"]

    run(main)

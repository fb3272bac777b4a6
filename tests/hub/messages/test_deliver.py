"""Handing over: recorded first, not twice while a program has yet to read, tried again."""

import asyncio
import sqlite3
import threading
import time

import pytest

from bullpen.cli.commands import send
from bullpen.engines import ENGINES
from bullpen.home import role_template
from bullpen.hub.agents.observe import observe_now
from bullpen.hub.holders import link as holder_link
from bullpen.hub.messages import arrival, deliver
from bullpen.hub.messages.channels import line_of
from bullpen.model import message as model
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.message import TYPING_SECONDS, is_open, joined
from bullpen.model.state import Idle, Working
from tests.hub.parts import SECONDS, Parts, in_parts, message, tasks, told, until
from tests.hub.stand_ins import ENGINE, Inlet, ToldEngine

REFUSE_SENT = (
    "CREATE TRIGGER full BEFORE UPDATE OF sent ON messages WHEN NEW.sent IS NOT NULL"
    " BEGIN SELECT RAISE(ABORT, 'no room'); END"
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes hundredths."""
    for name in ("AGAIN_SECONDS", "INTERRUPT_SECONDS", "FAILED_SECONDS"):
        monkeypatch.setattr(deliver, name, 0.02)
    for name in ("SHOWN_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(arrival, name, 0.02)


# ── recorded, then handed over ──


@pytest.mark.parametrize("channel", ["socket", "paste", "lines"])
def test_g2_what_cannot_be_recorded_as_sent_is_not_handed_over(
    engine: ToldEngine, hurried: None, caplog: pytest.LogCaptureFixture, channel: str
) -> None:
    """A hub that dies in between would hand it over again."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), deliver="lines" if channel == "lines" else "")
        holder = await parts.hold(live)
        inlet = await parts.listen(live) if channel == "socket" else Inlet()
        await parts.change(REFUSE_SENT)
        sent = await parts.send("once")
        await until(lambda: "messages could not be delivered" in caplog.text)
        await parts.change("DROP TRIGGER full")
        engine.shown.add(sent.id)
        await until(lambda: not parts.hub.messages.queue("amy"))
        handed = inlet.lines if channel == "socket" else holder.typed
        await until(lambda: bool(handed))
        assert len(handed) == 1
        assert b"once" in handed[0]

    in_parts(main)


def test_g2_between_two_tools_it_is_recorded_before_the_hook_is_answered(
    engine: ToldEngine,
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working(tool="Bash"))
        sent = await parts.send("look", "urgent")
        hook = {"hook_event_name": "PreToolUse"}
        await parts.change(REFUSE_SENT)
        with pytest.raises(sqlite3.IntegrityError):
            await parts.hub.delivery.hooked(live, hook)
        await parts.change("DROP TRIGGER full")
        answer = await parts.hub.delivery.hooked(live, hook)
        assert sent.id in answer
        assert [(one.status, one.channel) for one in await parts.inbox()] == [("sent", "hook")]
        assert await parts.hub.delivery.hooked(live, hook) == ""  # it is under way

    in_parts(main)


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit", "SessionStart"])
def test_g2_a_hook_that_can_add_nothing_hands_nothing_over(engine: ToldEngine, event: str) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working(tool="Bash"))
        await parts.send("look", "urgent")
        assert await parts.hub.delivery.hooked(live, {"hook_event_name": event}) == ""
        assert [one.status for one in await parts.inbox()] == ["queued"]

    in_parts(main)


# ── under way ──


def test_g2_what_its_program_has_yet_to_read_is_not_written_again(
    engine: ToldEngine, hurried: None
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        inlet.is_free.clear()
        sent = await parts.send("once")
        # Looked for again and again, long after one that was read would be written again.
        await until(lambda: engine.looks > 5)
        assert [one.status for one in parts.hub.messages.queue("amy")] == ["sent"]
        assert inlet.connections == 1
        engine.shown.add(sent.id)
        inlet.is_free.set()
        await until(lambda: not parts.hub.messages.queue("amy"))
        await until(lambda: bool(inlet.lines))
        assert len(inlet.lines) == 1

    in_parts(main)


def test_g2_what_was_read_and_is_not_shown_is_handed_over_again_to_one_that_is_idle(
    engine: ToldEngine, hurried: None
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        sent = await parts.send("again")
        await until(lambda: len(inlet.lines) > 1)
        engine.shown.add(sent.id)
        await until(lambda: not parts.hub.messages.queue("amy"))
        assert [event.data["id"] for event in await parts.events("message.delivered")] == [sent.id]

    in_parts(main)


def test_g2_one_that_works_may_show_it_later_and_is_not_given_it_again(
    engine: ToldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        sent = await parts.send("once")
        await until(lambda: len(inlet.lines) == 1)
        await parts.tell("amy", Working(doing="thinking"))
        await until(lambda: engine.looks > 0)
        monkeypatch.setattr(arrival, "SHOWN_SECONDS", 0.0)
        looks = engine.looks
        for tool in "abc":
            await parts.tell("amy", Working(tool=tool))
            looks += 1
            await until(lambda looks=looks: engine.looks >= looks)
        assert [one.status for one in parts.hub.messages.queue("amy")] == ["sent"]
        engine.shown.add(sent.id)
        await parts.tell("amy", Idle())
        await until(lambda: not parts.hub.messages.queue("amy"))
        assert len(inlet.lines) == 1

    in_parts(main)


class SlowTranscript(ToldEngine):
    """A look at it takes until the test lets it end, and shows what was there when it began."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Semaphore(0)  # once for each look

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        shown = super().find_shown(agent, ids, since)
        assert self.may_end.acquire(timeout=SECONDS)
        return shown


@pytest.mark.parametrize("is_idle_before", [False, True])
def test_g2_what_is_shown_during_a_look_is_not_given_again(
    monkeypatch: pytest.MonkeyPatch, is_idle_before: bool
) -> None:
    """The agent shows it after the look has begun, and is idle when the look ends."""
    slow = SlowTranscript()
    monkeypatch.setitem(ENGINES, ENGINE, slow)

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        sent = await parts.send("once")
        await until(lambda: len(inlet.lines) == 1)
        monkeypatch.setattr(arrival, "SHOWN_SECONDS", 0.0)
        await parts.tell("amy", Working(doing="thinking"))
        await until(lambda: slow.looks == 1)  # and it is at it
        if is_idle_before:
            await parts.tell("amy", Idle())
            slow.may_end.release()
            await until(lambda: slow.looks == 2)
        slow.shown.add(sent.id)
        if is_idle_before:
            await parts.tell("amy", Working())
        await parts.tell("amy", Idle())
        slow.may_end.release(10)
        await until(lambda: not parts.hub.messages.queue("amy"))
        assert len(inlet.lines) == 1

    in_parts(main)


def test_g2_idle_for_a_moment_only_is_no_proof_that_it_did_not_arrive(engine: ToldEngine) -> None:
    """The time counts from the hand-over and from when it became idle, whichever is later."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        await parts.send("once")
        await until(lambda: len(inlet.lines) == 1)
        # As if it had been handed over long ago, to one that has worked since.
        (one,) = parts.hub.messages.queue("amy")
        await parts.hub.messages.mark_queued([one])
        await parts.change("UPDATE messages SET sent = 5.0")
        await parts.hub.messages.load()
        looks = engine.looks
        await parts.tell("amy", Working())
        await until(lambda: engine.looks > looks)
        looks = engine.looks
        await parts.tell("amy", Idle())
        await until(lambda: engine.looks > looks)
        await parts.tell("amy", Working())
        await until(lambda: engine.looks > looks + 1)  # what the first look led to is done
        assert [one.sent for one in parts.hub.messages.queue("amy")] == [5.0]
        assert len(inlet.lines) == 1

    in_parts(main)


def test_g2_a_prompt_is_the_receipt_of_those_that_stand_in_it(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        for other in ("amy", "bob"):
            await parts.send("x", to=other)
        (first,), (other,) = parts.hub.messages.queue("amy"), parts.hub.messages.queue("bob")
        second = await parts.send("y")
        prompt = {"hook_event_name": "UserPromptSubmit", "prompt": joined([first, other])}
        await parts.hub.delivery.hooked(live, prompt)
        assert parts.hub.messages.queue("amy") == [second]
        assert parts.hub.messages.queue("bob") == [other]  # it is not the one who was shown it
        assert [event.data["id"] for event in await parts.events("message.delivered")] == [first.id]

    in_parts(main)


# ── interrupting ──


def test_g3_an_interrupt_that_failed_is_tried_again(engine: ToldEngine, hurried: None) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working(doing="thinking"))
        holder = await parts.hold(live)
        holder.is_refusing = True
        await parts.send("stop", "interrupt")
        await until(lambda: holder.refused > 0)
        await until(lambda: "cannot be interrupted" in parts.hub.delivery.why("amy"))
        holder.is_refusing = False
        await until(lambda: bool(holder.typed))
        assert holder.typed[0] == engine.interrupt

    in_parts(main)


def test_g3_one_that_did_not_end_the_turn_is_repeated_but_not_at_every_change(
    engine: ToldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(parts: Parts) -> None:
        holder = await parts.hold(parts.put(state=Working()))
        await parts.send("stop", "interrupt")
        await until(lambda: len(holder.typed) == 1)
        asked = holder.asked
        for tool in "abc":  # a second ESC does other things to a program that has ended its turn
            await parts.tell("amy", Working(tool=tool))
            asked += 1
            await until(lambda asked=asked: holder.asked >= asked)
        assert holder.typed == [engine.interrupt]
        monkeypatch.setattr(deliver, "INTERRUPT_SECONDS", 0.0)
        await parts.tell("amy", Working())
        await until(lambda: len(holder.typed) > 1)

    in_parts(main)


def test_g3_the_key_that_ends_a_turn_is_no_half_line_of_a_person(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        holder = await parts.hold(live)
        sent = await parts.send("now", "interrupt")
        await until(lambda: len(holder.typed) == 1)
        await parts.tell("amy", Idle())
        await until(lambda: len(holder.typed) == 2)
        assert sent.id.encode() in holder.typed[1]

    in_parts(main)


# ── a person at the terminal ──


def test_g3_half_a_line_of_a_person_is_left_until_a_prompt_was_taken(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        holder = await parts.hold(live)
        holder.last_input = time.time() - 60  # not typing now; and nothing was sent off since
        await parts.send("x")
        await until(lambda: "half a line" in parts.hub.delivery.why("amy"))
        assert holder.typed == []
        assert [one.status for one in parts.hub.messages.queue("amy")] == ["queued"]
        hook = {"hook_event_name": "UserPromptSubmit", "prompt": "what the person typed"}
        await parts.hub.delivery.hooked(live, hook)
        await parts.tell("amy", Working())
        await parts.tell("amy", Idle())
        await until(lambda: len(holder.typed) == 1)

    in_parts(main)


@pytest.mark.parametrize(("run_of", "is_typed"), [("run-amy", True), ("run-before", False)])
def test_g3_that_a_prompt_was_taken_is_found_in_the_log_of_that_run(
    engine: ToldEngine, run_of: str, is_typed: bool
) -> None:
    """An earlier hub may have heard of it."""

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        holder = await parts.hold(live)
        holder.last_input = time.time() - 60
        data = {"run": run_of, "event": "UserPromptSubmit"}
        await parts.store.append(Draft(time.time() - 30, "hook.received", "amy", data))
        await parts.store.append(
            Draft(time.time(), "hook.received", "bob", {**data, "run": "run-amy"})
        )
        await parts.send("x")
        await until(lambda: bool(holder.typed) or "half" in parts.hub.delivery.why("amy"))
        assert bool(holder.typed) == is_typed

    in_parts(main)


def test_g3_when_a_person_stops_typing_it_is_handed_over_although_nothing_else_changes(
    engine: ToldEngine,
) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        holder = await parts.hold(live)
        inlet = await parts.listen(live)
        holder.last_input = time.time() - TYPING_SECONDS + 0.2
        await parts.send("x")
        await until(lambda: bool(inlet.lines))
        assert time.time() - holder.last_input >= TYPING_SECONDS

    in_parts(main)


def test_g3_a_prompt_that_was_typed_for_it_is_nobody_who_types(
    engine: ToldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (deliver, model):
        monkeypatch.setattr(module, "TYPING_SECONDS", 1e6)

    async def main(parts: Parts) -> None:
        parts.role("liner", "cat", deliver="lines")
        live = parts.put(state=Idle(), deliver="lines", run="a" * 32)
        holder = await parts.hold(live)
        # As after a hub that was killed between the start and the prompt.
        again = Launch(name="amy", role="liner", run=live.agent.run, cwd="/", env={}, prompt="go")
        await parts.hub.launcher.launch(again)
        assert holder.typed == [b"go\n"]
        await parts.send("and then")
        await until(lambda: len(holder.typed) == 2)
        # A person types.
        holder.last_input = time.time() + 1
        await parts.send("later")
        await until(lambda: parts.hub.delivery.why("amy") == "somebody is typing in its terminal")
        sent, waiting = await parts.inbox()
        assert (is_open(sent), is_open(waiting)) == (False, True)

    in_parts(main)


def test_g3_of_a_terminal_that_does_not_answer_nobody_says_that_somebody_types(
    engine: ToldEngine,
) -> None:
    async def main(parts: Parts) -> None:
        parts.put(state=Idle(), deliver="lines")
        await parts.send("x")
        await until(lambda: parts.hub.delivery.why("amy") == deliver.NO_ANSWER)

    in_parts(main)


def test_g3_a_holder_that_is_silent_does_not_say_that_nobody_types(
    engine: ToldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_link, "ANSWER_SECONDS", 0.05)

    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        holder, inlet = await parts.hold(live), await parts.listen(live)
        holder.is_silent = True
        await parts.send("x")
        await until(lambda: parts.hub.delivery.why("amy") == deliver.NO_ANSWER or inlet.lines)
        assert (inlet.lines, holder.typed) == ([], [])
        holder.is_silent = False  # it is asked again
        await until(lambda: bool(inlet.lines))

    in_parts(main)


def test_g4_help_and_comments_say_how_a_line_is_typed() -> None:
    one = message("TEXT").model_copy(update={"id": "ID"})
    line = line_of(one).decode().strip()
    assert line == "[message from root · ID] TEXT"
    assert line in role_template.TEMPLATE
    assert line.removesuffix(" TEXT") in " ".join(str(send.command.help).split())


# ── to whom not ──


def test_g3_one_that_takes_tasks_gets_them_with_its_next_task(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), kind="headless")
        await parts.hold(live)
        await parts.send("x")
        await parts.tell("amy", Working())
        await parts.tell("amy", Idle())
        assert tasks("messages for amy") == []
        assert parts.hub.delivery.why("amy") == deliver.NEXT_TASK
        assert [one.status for one in await parts.inbox()] == ["queued"]

    in_parts(main)


def test_g3_a_line_is_shorter_than_what_a_terminal_cuts() -> None:
    for text in ("x" * 10, "x" * 3900, "x" * 3990, "☃" * 1400, "x " * 5000):
        line = line_of(message(text))
        assert len(line) < 4095
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        line.decode()


def test_g2_the_socket_of_a_run_that_ended_is_let_go(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.hold(live)
        inlet = await parts.listen(live)
        await parts.send("x")
        await until(lambda: bool(inlet.lines))
        assert inlet.open == 1
        await parts.store.append(Draft(time.time(), "agent.stopped", "amy", {"run": "run-amy"}))
        await until(lambda: inlet.open == 0)

    in_parts(main)


# ── who may type ──


@pytest.mark.parametrize(("deliver", "are_typed"), [("lines", False), ("lines-from-agents", True)])
def test_g3_what_an_agent_writes_is_a_line_of_anothers_shell_only_if_its_role_says_so(
    engine: ToldEngine, deliver: str, are_typed: bool
) -> None:
    """Works if `may_be_typed` is always true."""

    async def main(parts: Parts) -> None:
        holder = await parts.hold(parts.put(state=Idle(), deliver=deliver))
        attack = message("; touch /tmp/pwned", sender="bob")
        await parts.hub.delivery.send(attack)
        await parts.hub.delivery.send(message("make", sender="bullpen"))
        # A notice with the output of an agent's own tests, or the name of its file.
        quoting = message("$(touch pwned)", sender="bullpen").model_copy(update={"quotes": True})
        await parts.hub.delivery.send(quoting)
        await parts.send("the owner's")
        await until(lambda: b"the owner's" in b"".join(holder.typed))
        typed = b"".join(holder.typed)
        assert (b"pwned" in typed, b"make" in typed) == (are_typed, True)
        if not are_typed:
            await until(lambda: parts.hub.messages.queue("amy") == [attack, quoting])
            await until(lambda: "look into its inbox" in parts.hub.delivery.why("amy"))
        assert attack.text in [one.text for one in await parts.inbox()]

    in_parts(main)


# ── the worker ──


def test_g2_what_comes_in_the_last_moment_of_its_worker_is_handed_over(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle(), deliver="lines")
        holder = await parts.hold(live)
        for number in range(20):
            await parts.send(f"number {number:02d}")
        await until(lambda: b"number 19" in b"".join(holder.typed))
        await until(lambda: not tasks("messages for amy"))
        found = b"".join(holder.typed).decode().split("number ")[1:]
        assert [int(text[:2]) for text in found] == list(range(20))

    in_parts(main)


def test_g2_what_comes_when_its_worker_has_just_ended_is_handed_over(
    engine: ToldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(parts: Parts) -> None:
        kept, late = parts.hub.messages, message("late")
        await kept.send(late)
        kept.forget([late])  # on disk, and not in the queue yet
        holder = await parts.hold(parts.put(state=Idle(), deliver="lines"))
        real, waiting = kept.count_open, [late]

        def come() -> None:
            """As `send` does when it is on disk."""
            kept._open["amy"].put(late)
            parts.hub.delivery.kick("amy")

        def count_open(name: str) -> int:
            found = real(name)
            if holder.typed and not found and waiting:
                waiting.clear()
                asyncio.get_running_loop().call_soon(come)
            return found

        monkeypatch.setattr(kept, "count_open", count_open)
        await parts.send("first")
        await until(lambda: b"late" in b"".join(holder.typed))

    in_parts(main)


def test_g2_what_its_program_does_not_take_waits_again(engine: ToldEngine, hurried: None) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        holder = await parts.hold(live)
        holder.is_refusing = True
        sent = await parts.send("later")
        await until(lambda: "does not take it yet" in parts.hub.delivery.why("amy"))
        while [each.status for each in await parts.inbox()] != ["queued"]:  # between two tries
            await asyncio.sleep(0)
        holder.is_refusing = False
        await until(lambda: bool(holder.typed))
        engine.shown.add(sent.id)
        await until(lambda: not parts.hub.messages.queue("amy"))

    in_parts(main)


def test_g2_another_hub_goes_on_with_what_waits(engine: ToldEngine) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        holder = await parts.hold(live)
        await parts.send("waits")
        await parts.hub.messages.load()
        observe_now(live, told(live, Idle()))
        await until(lambda: not tasks("messages for amy") or bool(parts.hub.delivery.why("amy")))
        await parts.hub.delivery.load()
        await until(lambda: len(holder.typed) == 1)

    in_parts(main)

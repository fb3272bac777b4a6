"""Hooks that were left while the hub was away, and what of a hook is kept; what happens to agents
is recorded as soon as it can be."""

import asyncio
import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import ENGINES
from bullpen.errors import BullpenError
from bullpen.hub import background
from bullpen.hub.agents import hooks
from bullpen.hub.agents import observe as agent_observe
from bullpen.hub.agents.hooks import excerpt, summary
from bullpen.hub.agents.registry import LiveAgent
from bullpen.model.event import Draft
from bullpen.model.state import Idle, Working
from tests.hub.parts import SECONDS, Parts, in_parts, until
from tests.hub.stand_ins import ENGINE, ToldEngine


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> ToldEngine:
    made = ToldEngine()
    monkeypatch.setitem(ENGINES, ENGINE, made)
    return made


def line(at: float | str, event: str = "Stop", **fields: Any) -> bytes:
    return f"{at}\t{json.dumps({'hook_event_name': event, **fields})}\n".encode()


def spool(parts: Parts, live: LiveAgent, *lines: bytes, where: str = "hooks.spool") -> Path:
    path = parts.home.session(live.agent.name) / where
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(lines)
    return path


async def received(parts: Parts) -> list[Any]:
    return [event.data.get("event", "malformed") for event in await parts.events("hook.received")]


# ── spooled ──


def test_b4_a_hook_from_the_future_does_not_stand_against_what_is_said_after_it() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        spool(parts, live, line(time.time() + 1e6, "UserPromptSubmit"))
        await parts.hub.hooks.take_spooled(live)
        assert isinstance(live.view.state, Working)
        await parts.hub.hooks.receive(live, b'{"hook_event_name": "Stop"}')
        assert live.view.state == Idle()
        now = time.time()
        assert all(event.time <= now for event in await parts.events("hook.received"))
        assert live.view.told_at <= now

    in_parts(main)


def test_b4_a_hook_that_was_left_is_taken_once_and_its_file_goes() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        first, other = line(5.0, "Stop"), line(6.0, "UserPromptSubmit")
        for where in ("hooks.spool", "api/hooks.spool"):
            spool(parts, live, first, other, where=where)
        await parts.hub.hooks.take_spooled(live)
        assert await received(parts) == ["Stop", "UserPromptSubmit"] * 2  # two places are two
        # A hub was killed when it had recorded some of what it had taken.
        spool(parts, live, first, other, line(7.0, "SessionStart"), where="hooks.spool.taken")
        spool(parts, live, line(8.0, "SessionEnd"))
        await parts.hub.hooks.take_spooled(live)
        assert (await received(parts))[4:] == ["SessionStart", "SessionEnd"]
        session = parts.home.session("amy")
        assert [path.name for path in session.rglob("hooks.spool*")] == []
        # The same again in another run is another one.
        live.agent = live.agent.model_copy(update={"run": "r2"})
        spool(parts, live, first)
        await parts.hub.hooks.take_spooled(live)
        assert len(await received(parts)) == 7

    in_parts(main)


def test_b4_those_that_were_left_come_before_the_one_that_comes_now() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        spool(parts, live, line(time.time(), "UserPromptSubmit"))
        bodies = [b'{"hook_event_name": "Stop"}', b'{"hook_event_name": "SessionEnd"}']
        await asyncio.gather(*(parts.hub.hooks.receive(live, body) for body in bodies))
        assert await received(parts) == ["UserPromptSubmit", "Stop", "SessionEnd"]
        assert live.view.state == Idle()

    in_parts(main)


def test_b4_hooks_come_one_by_one_also_while_those_that_were_left_are_taken() -> None:
    async def main(parts: Parts) -> None:
        live, may_write = parts.put(state=Idle()), threading.Event()
        path = spool(parts, live, line(time.time(), "UserPromptSubmit"))
        stopped = asyncio.create_task(parts.store.write(lambda _: may_write.wait(SECONDS)))
        first = asyncio.create_task(parts.hub.hooks.receive(live, b'{"hook_event_name": "Stop"}'))
        await until(lambda: not path.exists())
        second = asyncio.create_task(
            parts.hub.hooks.receive(live, b'{"hook_event_name": "SessionEnd"}')
        )
        for _ in range(20):  # as far as it gets
            await asyncio.sleep(0)
        may_write.set()
        await asyncio.gather(stopped, first, second)
        assert await received(parts) == ["UserPromptSubmit", "Stop", "SessionEnd"]

    in_parts(main)


def test_b4_a_clock_that_was_set_back_does_not_make_the_last_word_the_first() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.tell("amy", Working(), at=time.time() + 1000)
        await parts.hub.hooks.receive(live, b'{"hook_event_name": "Stop"}')
        assert live.view.state == Idle()

    in_parts(main)


def test_b4_of_too_many_the_last_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "SPOOL_LINES", 2)

    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        events = ("SessionStart", "UserPromptSubmit", "Stop")
        spool(parts, live, *(line(5.0 + at, event) for at, event in enumerate(events)))
        await parts.hub.hooks.take_spooled(live)
        assert await received(parts) == ["UserPromptSubmit", "Stop"]

    in_parts(main)


@pytest.mark.parametrize("at", ["nan", "inf", "-inf", "soon", ""])
def test_b4_one_without_a_time_is_left_out_and_the_others_are_not(at: str) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        spool(parts, live, line(at, "SessionStart"), line(5.0, "Stop"))
        await parts.hub.hooks.take_spooled(live)
        assert await received(parts) == ["Stop"]

    in_parts(main)


def test_b4_neither_a_link_nor_a_directory_is_read() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Working())
        session = parts.home.session("amy")
        elsewhere = spool(parts, live, line(5.0), where="elsewhere")
        (session / "hooks.spool").symlink_to(elsewhere)
        (session / "api").mkdir()
        (session / "api" / "hooks.spool").mkdir()
        await parts.hub.hooks.take_spooled(live)
        assert await received(parts) == []
        assert elsewhere.exists()
        spool(parts, live, line(6.0))
        await parts.hub.hooks.take_spooled(live)
        assert await received(parts) == ["Stop"]

    in_parts(main)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b'{"a":' * 100_000])
def test_b4_what_is_no_hook_is_recorded_as_that(body: bytes) -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        assert await parts.hub.hooks.receive(live, body) == {}
        (event,) = await parts.events("hook.received")
        assert event.data == {"run": "run-amy", "malformed": len(body)}
        assert live.view.state == Idle()

    in_parts(main)


# ── what is kept ──


KEY = "sk-ant-api03-" + "a" * 500
OTHER_KEY = "ghp_" + "Ab1" * 12


def test_r1_half_a_credential_at_the_cut_is_not_shown() -> None:
    """What was redacted before it makes room for it."""
    for place in range(hooks.READ_CHARACTERS - len(OTHER_KEY), hooks.READ_CHARACTERS):
        text = f"{KEY} ".ljust(place) + OTHER_KEY + "y" * 1000
        assert "ghp_" not in excerpt(text), place
        assert "aaaa" not in excerpt(text)


def test_r1_a_short_text_is_kept_without_credentials_and_a_long_one_is_cut() -> None:
    assert excerpt("make all") == "make all"
    assert OTHER_KEY not in excerpt(f"use {OTHER_KEY} for it")
    assert excerpt("x" * 600) == "x" * hooks.TEXT_CHARACTERS
    assert excerpt("x" * 5000) == "x" * hooks.TEXT_CHARACTERS


def test_r1_of_a_hook_names_and_a_little_text_are_kept() -> None:
    hook = {
        "hook_event_name": "PreToolUse" * 20,
        "tool_name": "Bash" * 50,
        "tool_input": {"command": "secret"},
        "session_id": "s" * 200,
        "agent_id": 5,
        "prompt": f"do {OTHER_KEY}",
    }
    kept = summary("r1", hook)
    assert (len(kept["event"]), len(kept["tool"]), len(kept["session_id"])) == (80, 80, 80)
    assert kept["run"] == "r1"
    assert "agent_id" not in kept
    assert "ghp_" not in json.dumps(kept)
    assert "secret" not in json.dumps(kept)


def test_b4_half_surrogates_are_replaced() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        hook = await parts.hub.hooks.receive(
            live, b'{"hook_event_name": "Stop", "message": "a\\ud800b"}'
        )
        assert hook["message"] == "a?b"

    in_parts(main)


# ── recorded ──


def test_b3_what_happened_is_recorded_when_there_is_room_again_in_order_and_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_observe, "RECORD_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(background, "LEAVE_SECONDS", 60.0)  # on a machine under load

    async def main(parts: Parts) -> None:
        def pages(database: Any) -> int:
            return int(database.execute("PRAGMA page_count").fetchone()[0])

        keep = parts.hub.observer
        count = await parts.store.read(pages)
        await parts.change(f"PRAGMA max_page_count = {count}")
        drafts = [
            Draft(float(number), "hook.received", "amy", {"n": number, "x": "x" * 100_000})
            for number in range(3)
        ]
        for draft in drafts:
            keep.surely(draft)
        await until(lambda: caplog.text.count("cannot record an event yet") > 1)
        leaving = asyncio.ensure_future(parts.hub.background.leave())
        await asyncio.sleep(0)
        assert not leaving.done()  # a hub that leaves waits for it
        for _ in range(1000):  # it fails with those of the same moment that do not fit
            with contextlib.suppress(BullpenError):
                await parts.change("PRAGMA max_page_count = 1000000")
                break
        assert await leaving
        found = await parts.events("hook.received")
        assert [event.data["n"] for event in found] == [0, 1, 2]

    in_parts(main)


def test_b4_evidence_that_changes_no_state_is_recorded_too() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put(state=Idle())
        await parts.tell("amy", Idle(), at=50.0)
        (event,) = await parts.events("agent.state")
        assert event.data == live.view.model_dump(mode="json")
        assert live.view.told_at == 50.0
        assert await parts.hub.observer.observe(live, None) == []

    in_parts(main)


def test_b3_of_a_run_most_things_happen_once_and_some_again() -> None:
    async def main(parts: Parts) -> None:
        live = parts.put()
        for kind in ("agent.started", "agent.stopping", "agent.conversation"):
            for _ in range(2):
                await parts.store.append(agent_observe.draft(kind, live.agent, {}))
        counts = [
            len(await parts.events(kind))
            for kind in ("agent.started", "agent.stopping", "agent.conversation")
        ]
        assert counts == [1, 2, 2]

    in_parts(main)

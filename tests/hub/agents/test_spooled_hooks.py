"""Hooks that were left in a file while no hub ran: in their order, each once, none of the future,
and nothing kept of them that is half a credential."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from bullpen.home.paths import Home
from bullpen.hub.agents import hooks
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.watch import Watch
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.state import View, Working

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass
class RememberingHub:
    """Of a hub, what takes hooks, and remembers what it was to record."""

    home: Home
    drafts: list[Draft] = field(default_factory=list)
    seen_at: list[float] = field(default_factory=list)

    async def converse(self, live: LiveAgent, conversation: object) -> None:
        pass

    async def observe(self, live: LiveAgent, seen: Any, draft: Draft) -> None:
        self.drafts.append(draft)
        if seen is not None:
            self.seen_at.append(seen.at)

    def take(self, live: LiveAgent) -> None:
        taking = hooks.Hooks(self.home, cast(Observer, self), cast(Watch, self))
        asyncio.run(taking.take_spooled(live))


@pytest.fixture
def hub(tmp_path: Path) -> RememberingHub:
    (tmp_path / "sessions/amy/api").mkdir(parents=True)
    return RememberingHub(Home(tmp_path))


@pytest.fixture
def amy() -> LiveAgent:
    agent = Agent(name="amy", run="r1", cwd="/", command=("x",), created="now")
    return LiveAgent(agent, View(run="r1", state=Working(), since=0.0, decided_by="start"))


def spool(hub: RememberingHub, *lines: str, where: str = "hooks.spool") -> Path:
    path = hub.home.session("amy") / where
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


STOP = '{"hook_event_name": "Stop"}'


def test_s2_a_hook_from_the_future_is_of_now(hub: RememberingHub, amy: LiveAgent) -> None:
    """Or it would stand against everything that is said after it."""
    begun = time.time()
    spool(hub, f"{begun + 86400:.3f}\t{STOP}", f"1.5\t{STOP}")
    hub.take(amy)
    late, old = [draft.time for draft in hub.drafts]
    assert begun <= late <= time.time()
    assert old == 1.5
    assert all(at <= time.time() for at in hub.seen_at)


@pytest.mark.parametrize("at", ["nan", "inf", "-inf", "", "soon", "1e999"])
def test_s2_a_hook_without_a_time_is_passed_over(
    hub: RememberingHub, amy: LiveAgent, at: str
) -> None:
    spool(hub, f"{at}\t{STOP}", f"2.0\t{STOP}")
    hub.take(amy)
    assert [draft.time for draft in hub.drafts] == [2.0]


def test_s2_each_line_has_a_key_of_its_own_that_stays(hub: RememberingHub, amy: LiveAgent) -> None:
    """A hub that was killed while it took them reads them again."""
    lines = [f"1.0\t{STOP}", f"1.0\t{STOP}"]
    for where in ("hooks.spool", "api/hooks.spool"):
        spool(hub, *lines, where=where)
    hub.take(amy)
    keys = [draft.key for draft in hub.drafts]
    assert len(set(keys)) == 4
    spool(hub, *lines, where="hooks.spool.taken")
    spool(hub, *lines, where="hooks.spool.api.taken")
    hub.take(amy)
    assert [draft.key for draft in hub.drafts[4:]] == keys
    assert sorted(p.name for p in hub.home.session("amy").rglob("*")) == ["api"]


def test_s2_what_a_killed_hub_had_taken_comes_before_what_came_since(
    hub: RememberingHub, amy: LiveAgent
) -> None:
    spool(hub, f"1.0\t{STOP}", where="hooks.spool.taken")
    spool(hub, f"2.0\t{STOP}")
    hub.take(amy)
    assert [draft.time for draft in hub.drafts] == [1.0, 2.0]


def test_s2_of_too_many_the_last_are_taken(
    hub: RememberingHub, amy: LiveAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "SPOOL_LINES", 3)
    spool(hub, *(f"{n}.0\t{STOP}" for n in range(5)))
    hub.take(amy)
    assert [draft.time for draft in hub.drafts] == [2.0, 3.0, 4.0]


def test_s2_what_is_no_object_is_counted_and_not_kept(hub: RememberingHub, amy: LiveAgent) -> None:
    spool(hub, f"1.0\t{KEY}", "1.0\t[1]", "1.0\t" + "[" * 100_000)
    hub.take(amy)
    assert [draft.data for draft in hub.drafts] == [
        {"run": "r1", "malformed": size} for size in (len(KEY), 3, 100_000)
    ]


# ── what is kept of a hook ──


@pytest.mark.parametrize("seen", range(1, len(KEY) + 1))
def test_s2_half_a_credential_at_the_cut_is_not_kept(seen: int) -> None:
    """What stands before it is a long one itself, so that the cut comes into sight."""
    long = "ghp_" + "a" * (hooks.READ_CHARACTERS - seen - 5)
    kept = hooks.excerpt(f"{long} {KEY} and more " + "x" * 500)
    assert KEY[:4] not in kept
    assert "aaaa" not in kept


def test_s2_a_text_that_was_read_whole_is_kept_to_its_end() -> None:
    end = " and the end"
    text = "ghp_" + "a" * (hooks.READ_CHARACTERS - 4 - len(end)) + end
    assert hooks.excerpt(text) == "[redacted] and the end"
    assert hooks.excerpt("x" * 5000) == "x" * hooks.TEXT_CHARACTERS


def test_s2_contents_of_files_are_not_kept() -> None:
    hook = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Write",
        "tool_input": {"content": "the file"},
        "tool_response": "the file",
        "session_id": "s" * 200,
        "prompt": f"use {KEY} now",
    }
    assert hooks.summary("r1", hook) == {
        "run": "r1",
        "event": "PostToolUse",
        "tool": "Write",
        "session_id": "s" * 80,
        "text": "use [redacted] now",
    }

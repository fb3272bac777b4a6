"""What an agent said last, for the list."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from bullpen.hub.agents import last_answers
from bullpen.hub.agents.last_answers import LastAnswers
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.model.agent import Agent
from bullpen.model.state import Idle, View
from tests.hub.parts import until

ID = "0e3b1c9a-1111-4222-8333-944455566677"


def line(text: str) -> str:
    said: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "assistant", "message": said}) + "\n"


def test_p7_what_is_written_after_the_turn_was_said_to_be_over_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code says that a turn is over, and then writes the end of it into its transcript."""
    monkeypatch.setattr(last_answers, "LOOK_AFTER_SECONDS", (0.0, *[0.01] * 6000))
    states = tmp_path / "config" / "sessions"
    transcript = tmp_path / "config" / "projects" / "work" / f"{ID}.jsonl"
    for directory in (states, transcript.parent):
        directory.mkdir(parents=True)
    transcript.write_text(line("first"))
    agent = Agent(
        name="amy",
        run="r",
        cwd="/",
        created="",
        engine="claude",
        state_files=str(states),
        conversation=ID,
    )

    async def story() -> None:
        registry = Registry()
        registry.put(LiveAgent(agent, View(run="r", state=Idle(), since=0.0, decided_by="hook")))
        context = HubContext(Home(tmp_path / "home"), Settings(), 1, tmp_path)
        shown = LastAnswers(context, registry, Background())
        await shown.load()
        await until(lambda: shown.by_name() == {"amy": "first"})
        with transcript.open("a") as file:
            file.write(line("over"))
        await until(lambda: shown.by_name() == {"amy": "over"})

    asyncio.run(story())

"""The file of a session: those of before load, and the names in it stay."""

import json
from pathlib import Path

from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.model.agent import Agent
from bullpen.model.agent_shown import AgentShown

OF_BEFORE = {
    "name": "amy",
    "run": "r",
    "engine": "claude",
    "engine_session": "01a1e29b-4f8e-7c21-82ad-fdfff48671aa",
    "cwd": "/",
    "command": ["claude"],
    "created": "2026-11-16T00:00:00Z",
    "of_a_later_version": 1,
}


def test_b6_the_conversation_of_a_session_of_before_goes_on(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.session("amy").mkdir(parents=True)
    file = home.session("amy") / "session.json"
    file.write_text(json.dumps(OF_BEFORE))
    agent = sessions.load(home, "amy")
    assert agent.conversation == OF_BEFORE["engine_session"]
    assert Agent(**{**agent.model_dump(), "run": "s"}).conversation == agent.conversation
    sessions.rewrite(home, agent, LaunchEnv({}))
    written = json.loads(file.read_text())
    assert written["engine_session"] == OF_BEFORE["engine_session"]
    assert "conversation" not in written
    assert sessions.load(home, "amy") == agent


def test_b6_the_api_calls_a_conversation_as_before() -> None:
    for mode in ("validation", "serialization"):
        fields = AgentShown.model_json_schema(mode=mode)["properties"]
        assert "engine_session" in fields
        assert "conversation" not in fields

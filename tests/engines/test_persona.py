"""W9, R1: a role's persona, its instructions and the repository's own texts are in the request that
the model gets, whatever the engine, in a terminal and for a task.

(Claude Code in a terminal: `test_claude_agent.py`.)
"""

import json
from pathlib import Path

import pytest

from tests.engines.team import Team, made_team
from tests.hub.tasks.desk import Desk

pytestmark = pytest.mark.slow

TEXTS = {"real": "CLAUDE.md", "codex": "AGENTS.md", "gemini": "GEMINI.md"}
LONG = pytest.param("gemini", marks=pytest.mark.storm)


def check_told(team: Team, prompt: str) -> None:
    """Of the request that the model got with this prompt; a program may have tried it twice."""
    bodies = [json.dumps(turn.body) for turn in team.claude.model.turns]
    asked = [body for body in bodies if prompt in body]
    assert asked
    for told in asked:
        assert told.count("You lead the herons.") == 1
        assert told.index("You lead the herons.") < told.index("Write little.")
        assert told.count("Think of cranes.") == 1


@pytest.mark.parametrize("kind", ["codex", LONG])
def test_w9_persona_and_the_repositorys_texts_reach_the_model_in_a_terminal(
    tmp_path: Path, kind: str
) -> None:
    with made_team(tmp_path, kind) as team:
        (team.claude.work / TEXTS[kind]).write_text("Think of cranes.\n")
        amy = team.run(team.boss(), prompt="[[say noted]]")
        amy.wait_said("noted")
        check_told(team, "[[say noted]]")


@pytest.mark.parametrize("kind", ["real", "codex", LONG])
def test_w9_t6_persona_and_the_repositorys_texts_reach_the_model_in_a_task(
    tmp_path: Path, kind: str
) -> None:
    with made_team(tmp_path, kind) as team:
        work = team.claude.work
        (work / TEXTS[kind]).write_text("Think of cranes.\n")
        config = team.pen.root / "config.yaml"
        config.write_text(f"{config.read_text()}workdirs: ['{work}']\n")
        desk = Desk(team.pen, team.claude, team.engine)
        # The name that the configuration of these tests has for Codex's key: no sandbox lets it in.
        desk.write_file("amy", role=team.boss(env={"FAKE_KEY": "x"}))
        desk.start("amy")
        task = desk.done(desk.give("amy", "[[say noted]]", workdir=str(work)))
        assert task["output"] == "noted"
        check_told(team, "[[say noted]]")

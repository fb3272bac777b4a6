"""Questions of Claude Code itself: its dialog and the inbox are one question."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engines.team import Agent, Team
from tests.hub.permissions.asking import question
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BIRD = question("Which bird?", "heron", "crane")
COLOURS = question("Which colours?", "red", "green", several=True)
BLOCKED = "blocked (question: AskUserQuestion)"
DIALOG = "Enter to select"


def inbox(team: Team, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = team.pen.client().get("approvals", **query)["approvals"]
    return found


def asked(team: Team, *questions: Any) -> Agent:
    """An agent that shows the dialog, and whose hook waits."""
    call = json.dumps({"questions": questions})
    amy = team.run(prompt=f"[[tool AskUserQuestion {call} ; say so be it]]")
    amy.wait(BLOCKED)
    amy.wait_screen(DIALOG)
    wait_until(lambda: [one["state"]["reachable"] for one in inbox(team)] == [True])
    return amy


def result(team: Team) -> str:
    """What the model was told that the tool came to."""
    # Not the last message: that tells of tools that have come meanwhile, or does not.
    messages: Sequence[Any] = team.claude.model.turns[-1].body["messages"]
    blocks = [one for each in messages if each["role"] == "user" for one in each["content"]]
    (told,) = [one["content"] for one in blocks if one["type"] == "tool_result"]
    return str(told)


@pytest.mark.storm
def test_q4_an_answer_from_the_inbox_reaches_the_model_and_closes_the_dialog(team: Team) -> None:
    amy = asked(team, BIRD, COLOURS)
    assert team.cli("answer", "1", "a grey one", "2,1").code == 0
    amy.wait_said("so be it")
    assert '"Which bird?"="a grey one", "Which colours?"="green, red"' in result(team)
    wait_until(lambda: DIALOG not in amy.screen())
    assert inbox(team) == []


@pytest.mark.storm
def test_q4_the_words_of_an_option_are_that_option(team: Team) -> None:
    amy = asked(team, BIRD)
    assert team.cli("answer", "1", "Crane").code == 0
    amy.wait_said("so be it")
    assert result(team).startswith('Your questions have been answered: "Which bird?"="crane".')


@pytest.mark.storm
def test_q4_an_answer_in_the_terminal_closes_the_question(team: Team) -> None:
    amy = asked(team, BIRD)
    amy.press("2", lambda: DIALOG not in amy.screen())
    amy.wait_said("so be it")
    assert '"Which bird?"="crane"' in result(team)
    wait_until(lambda: inbox(team) == [])
    ran = team.cli("answer", "1", "heron")
    assert (ran.code, "answered in the terminal" in ran.err) == (5, True)


@pytest.mark.storm
def test_q4_a_dismissed_dialog_closes_the_question(team: Team) -> None:
    amy = asked(team, BIRD)
    amy.press("\x1b", lambda: DIALOG not in amy.screen())
    wait_until(lambda: inbox(team) == [])
    assert inbox(team, all=1)[0]["state"]["status"] == "closed"
    amy.wait("idle")


@pytest.mark.storm
def test_q4_a_question_outlives_killed_hubs(team: Team) -> None:
    amy = asked(team, BIRD)
    team.pen.kill_hub()
    team.pen.start()
    wait_until(lambda: [one["id"] for one in inbox(team)] == [1])
    amy.wait(BLOCKED)
    amy.wait_screen(DIALOG)
    assert team.cli("answer", "1", "1").code == 0
    amy.wait_said("so be it")
    assert '"Which bird?"="heron"' in result(team)


@pytest.mark.storm
def test_q4_a_plan_is_answered_in_the_terminal_and_the_command_says_so(team: Team) -> None:
    team.role("planner", permission_mode="plan")
    amy = team.run("planner", prompt='[[tool ExitPlanMode {"plan":"fly"} ; say so be it]]')
    amy.wait("blocked (question: ExitPlanMode)")
    wait_until(lambda: len(inbox(team)) == 1)
    wait_until(lambda: not inbox(team)[0]["state"]["reachable"])
    ran = team.cli("answer", "1", "1")
    assert (ran.code, "can only be answered in amy's terminal" in ran.err) == (7, True)
    assert "answer in the terminal · bullpen attach amy" in team.cli("approvals").out

"""Questions of agents in the inbox: answered once, by a person, whatever is killed meanwhile."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.home.paths import HUB
from bullpen.hot import wire
from tests.at_terminal import AtTerminal
from tests.hub.pen import Pen
from tests.hub.permissions.asking import Asking, Hook, question_request

pytestmark = pytest.mark.slow

LISTED = """\
     Which bir: Which bird?
       1. heron: a heron
       2. crane: a crane
     a number, words or a text of your own · bullpen answer 1 ANSWER
"""


@pytest.fixture
def asking(pen: Pen) -> Iterator[Asking]:
    pen.start()
    pen.run(name="amy")
    made = Asking(pen)
    yield made
    for hook in made.hooks:
        hook.kill()


def answers(hook: Hook) -> Any:
    decision = hook.decision()
    assert decision["behavior"] == "allow"
    return decision["updatedInput"]["answers"]


def test_q4_a_question_is_read_and_answered_in_the_inbox(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask_question("Which bird?")
    assert pen.state("amy") == "blocked (question: AskUserQuestion)"
    assert pen.cli("approvals").out.partition("\n")[2] == LISTED
    assert "\n  2. crane: a crane\n" in pen.cli("approvals", "1").out
    (asked,) = pen.cli("approvals", "1", "--json").json["questions"]
    assert [option["label"] for option in asked["options"]] == ["heron", "crane"]
    assert asking.inbox()[0]["questions"] == [asked]

    refused = pen.cli("approve", "1", "--yes")
    assert (refused.code, "#1 is a question of amy" in refused.err) == (5, True)
    assert "hint:  bullpen approvals 1 · bullpen answer 1 TEXT" in refused.err
    assert "no option 3" in pen.cli("answer", "1", "3").err

    ran = pen.cli("answer", "amy", "crane")
    assert (ran.code, ran.out) == (0, "amy has your answer, and goes on.\n")
    assert answers(hook) == {"Which bird?": "crane"}
    assert pen.state("amy") == "working (thinking)"
    assert "#1 answered by you" in pen.cli("explain", "amy").out
    late = pen.cli("answer", "1", "1")
    assert (late.code, "#1 was decided before: answered by you" in late.err) == (5, True)


def test_q4_nobody_is_asked_whether_a_question_is_allowed(asking: Asking) -> None:
    asking.ask_question("Which bird?")
    env = {"BULLPEN_DIR": str(asking.pen.root), "LINES": "24", "COLUMNS": "80"}
    terminal = AtTerminal("approve", **env)
    terminal.expect("Which bird?")
    terminal.expect("bullpen answer 1 TEXT")
    assert terminal.end() == 5
    assert "Allow" not in terminal.text


def test_q4_several_questions_have_an_answer_each(asking: Asking) -> None:
    hook = asking.ask_question("Which bird?", "And then?")
    assert "there are 2 questions, and 1 answers" in asking.pen.cli("answer", "1", "2").err
    ran = asking.pen.cli("answer", "#1", "2", "let it fly", "--json")
    chosen = [{"options": [2], "text": ""}, {"options": [], "text": "let it fly"}]
    assert ran.json["state"]["answers"] == chosen
    assert answers(hook) == {"Which bird?": "crane", "And then?": "let it fly"}


def test_q4_a_question_may_be_refused(asking: Asking) -> None:
    hook = asking.ask_question("Which bird?")
    assert asking.pen.cli("deny", "1", "--reason", "find out").code == 0
    assert hook.decision() == {"behavior": "deny", "message": "find out"}


def test_q4_only_a_question_takes_an_answer(asking: Asking) -> None:
    asking.ask("make all")
    ran = asking.pen.cli("answer", "1", "yes")
    assert (ran.code, "#1 is no question with options" in ran.err) == (2, True)
    assert "amy asks nothing that waits here" in asking.pen.cli("answer", "amy", "yes").err
    assert asking.inbox()[0]["state"]["status"] == "waiting"


@pytest.mark.storm
def test_q4_a_killed_hub_keeps_question_and_answer(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask_question("Which bird?")
    pen.kill_hub()
    pen.start()
    assert [len(one["questions"]) for one in asking.inbox()] == [1]
    assert pen.cli("answer", "1", "1").code == 0
    assert answers(hook) == {"Which bird?": "heron"}
    pen.kill_hub()
    pen.start()
    # As a hook would ask again that has not heard of the answer.
    target = f"/agents/amy/permission?ask={asking.inbox(all=1)[0]['ask']}"
    head, body = {"content-type": "application/json"}, question_request("Which bird?")
    told = wire.request(str(pen.home.socket(HUB)), "POST", target, head, body, 60)
    decision = json.loads(told.body)["hookSpecificOutput"]["decision"]
    assert decision["updatedInput"]["answers"] == {"Which bird?": "heron"}

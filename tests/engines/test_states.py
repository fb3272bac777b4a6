"""States of the real Claude Code: every way in which hooks alone would be wrong."""

import json
import os
import signal
from typing import Any

import pytest

from tests.engines.team import Agent, Team
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ASK = '[[tool Bash {"command":"touch made"} ; say done now]]'
ESCAPE = "\x1b"


def test_s1_an_interrupt_fires_no_hook_and_is_seen(both: Team) -> None:
    amy = both.run()
    amy.wait("idle")
    amy.submit("[[hold a ; say never]]")
    both.claude.wait_held("a")
    amy.wait("working (thinking)")
    before = amy.hooks()
    amy.type(ESCAPE)
    amy.wait("idle")
    assert "Stop" not in amy.hooks()[len(before) :]
    assert amy.explained()["decided_by"] == "engine state file"
    both.claude.release("a")


def test_i5_who_waits_waits_for_the_prompt_of_the_start_and_for_messages(both: Team) -> None:
    amy = both.run(prompt="[[hold a ; say first]]")
    assert both.pen.events("amy", "agent.state")[0]["is_prompt_due"]
    assert both.cli("wait", "amy", "--timeout", "1s").code == 124
    both.claude.release("a")
    done = both.cli("wait", "amy")
    assert (done.code, done.out) == (0, "amy  idle\n")
    amy.wait_said("first")
    both.cli("send", "amy", "[[hold b ; say second]]")
    assert both.cli("wait", "amy", "--timeout", "1s").code == 124
    both.claude.release("b")
    assert both.cli("wait", "amy").code == 0
    amy.wait_said("second")
    assert both.run(name="bob").name == "bob"
    assert both.cli("wait", "bob").code == 0  # without a prompt there is nothing to wait for


@pytest.mark.storm
def test_s1_an_interrupted_tool_is_seen(team: Team) -> None:
    team.role("worker", permissions={"allow": ["Bash(tail:*)"]})
    (team.claude.work / "held").touch()  # what lies elsewhere it may ask for, whatever is allowed
    amy = team.run(prompt='[[tool Bash {"command":"tail -f held"} ; say never]]')
    amy.wait("working (Bash)")
    amy.type(ESCAPE)
    amy.wait("idle")


def test_s3_permission_is_asked_for_and_given_in_the_terminal(both: Team) -> None:
    amy = both.run(prompt=ASK)
    amy.wait("blocked (permission: Bash)")
    assert not (both.claude.work / "made").exists()
    amy.answer("1")
    amy.wait_said("done now")
    assert (both.claude.work / "made").exists()


@pytest.mark.storm
@pytest.mark.parametrize("keys", ["4", ESCAPE], ids=["no", "escape"])
def test_s1_a_refusal_fires_no_stop_and_is_seen(team: Team, keys: str) -> None:
    amy = team.run(prompt=ASK)
    amy.wait("blocked (permission: Bash)")
    amy.answer(keys)
    amy.wait("idle")
    assert "Stop" not in amy.hooks()
    assert not (team.claude.work / "made").exists()


FAILED = {401: "idle (failed: login refused, API 401)", 500: "idle (failed: API 500)"}


@pytest.mark.storm
@pytest.mark.parametrize("status", FAILED)
def test_s3_a_failure_of_the_api_is_shown_until_the_next_prompt(team: Team, status: int) -> None:
    amy = team.run(prompt=f"[[status {status}]]")
    amy.wait(FAILED[status])
    assert "Stop" not in amy.hooks()
    why = FAILED[status][len("idle (failed: ") : -1]
    wait_until(lambda: [one["why"] for one in team.pen.events("amy", "agent.failed")] == [why])
    assert FAILED[status] in team.cli("explain", "amy").out
    amy.submit("[[hold h ; say better]]")
    amy.wait("working (thinking)")
    amy.type(ESCAPE)
    amy.wait("idle")
    team.claude.release("h")


def test_s3_no_login_is_shown(both: Team) -> None:
    del both.pen.env["ANTHROPIC_API_KEY"]  # what is left is the address of a gateway
    amy = both.run(prompt="[[say never]]")
    amy.wait("idle (failed: not logged in)")


@pytest.mark.storm
def test_s1_a_limit_of_the_api_ends_the_turn(team: Team) -> None:
    amy = team.run(prompt="[[status 429]]")
    wait_until(lambda: "StopFailure" in amy.hooks())
    wait_until(lambda: amy.words.startswith("idle (rate-limited"))
    assert "Stop" not in amy.hooks()


@pytest.mark.storm
def test_s1_a_queued_prompt_is_announced_early_and_worked_on_later(team: Team) -> None:
    amy = team.run(prompt="[[hold one ; say first]]")
    team.claude.wait_held("one")
    amy.type("\x1b[200~[[hold two ; say second]]\x1b[201~\r")
    wait_until(lambda: amy.hooks().count("UserPromptSubmit") == 2)
    assert amy.words == "working (thinking)"
    team.claude.release("one")
    team.claude.wait_held("two")
    # Its turn began without a hook; the last one to be heard of was the Stop of the first.
    wait_until(lambda: "Stop" in amy.hooks())
    amy.wait("working", "working (thinking)")
    team.claude.release("two")
    amy.wait_said("second")


@pytest.mark.storm
def test_s1_a_killed_program_is_not_taken_at_the_word_of_its_file(team: Team) -> None:
    amy = team.run(prompt="[[hold a ; say never]]")
    team.claude.wait_held("a")
    amy.wait("working (thinking)")
    kill(team.pen.program("amy"))
    amy.wait("exited (signal 9)")
    assert [state["status"] for state in team.claude.states()] == ["busy"]
    team.pen.kill_hub()
    team.pen.start()
    assert amy.words == "exited (signal 9)"
    team.claude.release("a")


@pytest.mark.storm
def test_s3_compaction_is_seen(team: Team) -> None:
    amy = team.run(prompt="[[say something to compact]]")
    amy.wait_said("something to compact")
    amy.submit("/compact")
    wait_until(lambda: "PostCompact" in amy.hooks())
    amy.wait("idle")
    states = [event["state"] for event in team.pen.events("amy", "agent.state")]
    assert {"state": "working", "tool": "", "doing": "compacting", "until": None} in states


@pytest.mark.storm
def test_s3_a_question_to_the_person_is_a_block(team: Team) -> None:
    question = {
        "questions": [
            {
                "question": "Which bird?",
                "header": "Bird",
                "multiSelect": False,
                "options": [
                    {"label": "heron", "description": "grey"},
                    {"label": "crane", "description": "tall"},
                ],
            }
        ]
    }
    amy = team.run(prompt=f"[[tool AskUserQuestion {json.dumps(question)} ; say so be it]]")
    amy.wait("blocked (question: AskUserQuestion)")
    amy.wait_screen("Which bird?")

    def waiting() -> list[dict[str, Any]]:
        return team.pen.client().get("approvals")["approvals"]

    wait_until(lambda: [each["state"]["reachable"] for each in waiting()] == [True])
    assert amy.words == "blocked (question: AskUserQuestion)"

    def answered() -> bool:  # a dialog ignores keys for a moment after it is drawn
        amy.type("\r")
        return "● so be it" in amy.screen()

    wait_until(answered)
    amy.wait("idle")
    wait_until(lambda: waiting() == [])


@pytest.mark.storm
def test_s1_what_happened_while_the_hub_was_away_is_known_after(team: Team) -> None:
    amy = team.run(prompt="[[hold a ; say all alone]]")
    team.claude.wait_held("a")
    amy.wait("working (thinking)")
    team.pen.kill_hub()
    team.claude.release("a")
    wait_until(lambda: [state["status"] for state in team.claude.states()] == ["idle"])
    team.pen.start()
    amy.wait("idle")
    assert amy.explained()["decided_by"] == "engine state file"


@pytest.mark.storm
def test_s1_a_dialog_that_opened_while_the_hub_was_away_is_known_after(team: Team) -> None:
    amy = team.run(prompt='[[hold a ; tool Bash {"command":"touch made"} ; say done now]]')
    team.claude.wait_held("a")
    team.pen.kill_hub()
    team.claude.release("a")
    wait_until(lambda: [state["status"] for state in team.claude.states()] == ["waiting"])
    team.pen.start()
    wait_until(lambda: amy.words.startswith("blocked (permission"))
    amy.answer("1")
    amy.wait_said("done now")


@pytest.mark.storm
def test_s2_a_hub_that_is_away_holds_nothing_up(team: Team) -> None:
    team.role("worker", permissions={"allow": ["Bash(echo:*)"]})
    amy = team.run()
    amy.wait_ready()
    os.kill(team.pen.pid, signal.SIGKILL)
    client = team.pen.connect("amy")
    client.attach(replay=False, nudge=False)
    calls = " ; ".join('tool Bash {"command":"echo x"}' for _ in range(3))
    client.type(f"\x1b[200~[[{calls} ; say through]]\x1b[201~\r".encode())
    wait_until(lambda: len(team.claude.model.turns) == 4)
    team.pen.start()
    amy.wait_said("through")


@pytest.mark.storm
def test_s3_a_dialog_at_its_start_is_shown_and_goes_with_its_answer(team: Team) -> None:
    """Of a program that is held as it is: it asks whether the directory is trusted."""
    (team.claude.config / ".claude.json").write_text('{"hasCompletedOnboarding": true}')
    del team.pen.env["ANTHROPIC_API_KEY"]
    team.pen.env["ANTHROPIC_AUTH_TOKEN"] = "any"
    team.pen.run(str(team.claude.program), name="amy", cwd=str(team.claude.work))
    amy = Agent(team, "amy")
    amy.wait("blocked (dialog: trust)")
    assert amy.explained()["decided_by"] == "screen"
    for verb in ("list", "explain"):
        assert "bullpen attach amy" in team.cli(verb, *(["amy"] * (verb == "explain"))).out
    amy.type("\x1b[B\r")
    amy.wait_ready()
    wait_until(lambda: amy.words != "blocked (dialog: trust)")

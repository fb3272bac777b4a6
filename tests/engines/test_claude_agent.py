"""Claude Code as an agent: its start, its conversation, what of a role takes effect."""

import json
import os
import signal
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from tests.engines.team import Team
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_e2_starts_without_a_dialog_and_works_through_a_turn(both: Team) -> None:
    amy = both.run()
    amy.wait("idle")
    amy.submit("[[hold a ; say hello there]]")
    amy.wait("working (thinking)")
    both.claude.wait_held("a")
    both.claude.release("a")
    amy.wait_said("hello there")
    assert amy.explained()["decided_by"] == "engine state file"


def test_e3_a_prompt_that_begins_with_a_dash_is_a_prompt(both: Team) -> None:
    amy = both.run(prompt="--model [[say taken as it is]]")
    amy.wait_said("taken as it is")


def test_e3_restart_goes_on_with_the_conversation(team: Team) -> None:
    amy = team.run(prompt="Remember the word heron. [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    ran = team.cli("restart", "amy")
    assert ran.code == 0, ran.err
    amy.wait("idle")
    assert amy.conversation == before
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    assert "heron" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_e3_run_under_a_used_name_begins_a_new_conversation_unless_told_to_resume(
    team: Team,
) -> None:
    amy = team.run(prompt="The word is heron. [[say noted]]")
    amy.wait_said("noted")
    first = amy.conversation
    team.pen.stop("amy", 5)
    team.run(prompt="[[say a new one]]")
    amy.wait_said("a new one")
    assert amy.conversation != first
    assert "heron" not in json.dumps(team.claude.model.turns[-1].body)
    amy.wait("idle")
    second = amy.conversation
    team.pen.stop("amy", 5)
    team.run(prompt="[[say more of it]]", resume=True)
    amy.wait_said("more of it")
    assert amy.conversation == second
    assert "a new one" in json.dumps(team.claude.model.turns[-1].body)


def test_e3_resume_without_a_conversation_is_refused(both: Team) -> None:
    with pytest.raises(BullpenError, match="amy has no conversation to resume"):
        both.run(resume=True)
    assert both.pen.agents() == {}


@pytest.mark.storm
def test_s1_clear_begins_a_conversation_which_is_followed_and_resumed(team: Team) -> None:
    amy = team.run(prompt="The word is heron. [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    amy.submit("/clear")
    wait_until(lambda: amy.conversation != before)
    amy.submit("The word is crane. [[hold c ; say cleared]]")
    amy.wait("working (thinking)")
    team.claude.wait_held("c")
    team.claude.release("c")
    amy.wait("idle")
    assert team.cli("restart", "amy").code == 0
    amy.wait("idle")
    amy.submit("[[say third]]")
    amy.wait_said("third")
    said = json.dumps(team.claude.model.turns[-1].body)
    assert "crane" in said
    assert "heron" not in said


def test_e6_killed_and_restarted_it_goes_on_with_the_conversation(team: Team) -> None:
    amy = team.run(prompt="The word is heron. [[say noted]]")
    amy.wait_said("noted")
    amy.submit("[[hold k ; say never]]")
    team.claude.wait_held("k")
    before = amy.conversation
    kill(team.pen.program("amy"))
    amy.wait("exited (signal 9)")
    left = [state for state in team.claude.states() if state["sessionId"] == before]
    assert left, "the killed one is expected to leave its state file"
    team.claude.release("k")
    assert team.cli("restart", "amy").code == 0
    amy.wait("idle")
    assert amy.conversation == before
    amy.submit("[[say back again]]")
    amy.wait_said("back again")
    assert "heron" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_e6_killed_before_its_first_answer_it_can_be_restarted(team: Team) -> None:
    """It left a file that Claude Code cannot resume, and whose id it says is in use."""
    amy = team.run(prompt="[[hold k ; say never]]")
    team.claude.wait_held("k")
    kill(team.pen.program("amy"))
    amy.wait("exited (signal 9)")
    team.claude.release("k")
    assert team.cli("restart", "amy").code == 0
    amy.wait("idle")
    amy.submit("[[say here]]")
    amy.wait_said("here")


def test_e5_a_conversation_that_is_open_elsewhere_is_not_opened_again(team: Team) -> None:
    amy = team.run(prompt="[[say noted]]")
    amy.wait_said("noted")
    team.pen.stop("amy", 5)
    words = ["--resume", amy.conversation, "--permission-mode", "manual"]
    with team.claude.start(*words) as terminal:
        terminal.wait_ready()
        ran = team.cli("restart", "amy")
        assert ran.code != 0
        assert f"the conversation of amy is open in process {terminal.pid}" in ran.err
    assert team.cli("restart", "amy").code == 0
    amy.wait("idle")


def test_r1_what_a_role_says_reaches_the_model(team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "hooked"
    team.role(
        "worker",
        model="haiku",
        instructions="Always think of herons.",
        env={"WORD": "crane"},
        settings={"includeCoAuthoredBy": False},
        hooks={"PostToolUse": [{"matcher": "Bash", "command": f"touch {mark}"}]},
        permissions={"allow": ["Bash(printenv:*)", "Bash(echo:*)"], "deny": ["Bash(echo no:*)"]},
    )
    amy = team.run(
        prompt='[[tool Bash {"command":"printenv WORD"} ; tool Bash {"command":"echo no"} ; say x]]'
    )
    amy.wait_said("x")
    wait_until(mark.exists)
    wait_until(lambda: len(team.claude.model.turns) == 3)
    said = json.dumps(team.claude.model.turns[-1].body)
    assert team.claude.model.turns[-1].body["model"].startswith("claude-haiku")
    assert "Always think of herons." in said
    assert "crane" in said  # a rule allowed it, and the role's variable was there
    assert "denied" in said
    assert amy.hooks().count("PreToolUse") == 2  # ours go on beside the role's
    assert amy.shown["model"] == "haiku"


@pytest.mark.storm
def test_r1_a_system_prompt_takes_the_place_of_the_engines(team: Team) -> None:
    team.role("worker", system_prompt="You are a heron.")
    amy = team.run(prompt="[[say caw]]")
    amy.wait_said("caw")
    system = json.dumps(team.claude.model.turns[-1].body["system"])
    assert "You are a heron." in system


@pytest.mark.storm
def test_e2_a_role_may_have_a_config_directory_for_each_session(team: Team) -> None:
    team.role("worker", claude_config_dir="session")
    amy = team.run(prompt="[[say own]]")
    amy.wait_said("own")
    own = team.pen.session("amy") / "claude-config"
    assert list(own.glob("projects/*/*.jsonl"))
    assert not list(team.claude.config.glob("projects/*/*.jsonl"))
    assert amy.explained()["decided_by"] == "engine state file"


@pytest.mark.storm
def test_e2_a_running_claude_loses_nothing_when_another_starts(team: Team) -> None:
    """Both write into one `.claude.json`."""
    names = [f"a{number}" for number in range(4)]
    agents = [team.run(name=name, prompt=f"[[say {name} spoke]]") for name in names]
    for agent in agents:
        agent.wait_said(f"{agent.name} spoke")
    found = json.loads((team.claude.config / ".claude.json").read_text())
    assert found["hasCompletedOnboarding"] is True
    wait_until(lambda: not list(team.claude.config.glob(".claude.json.lock")))


HOOKED = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": ""}]}]}}


@pytest.mark.few(1)
@pytest.mark.parametrize("is_trusted", [False, True])
def test_e3_a_repositorys_own_hooks_run_only_if_it_is_trusted(
    team: Team, tmp_path: Path, is_trusted: bool
) -> None:
    mark = tmp_path / "planted"
    directory = team.claude.work / ".claude"
    directory.mkdir()
    hooked = json.dumps(HOOKED).replace('"command": ""', f'"command": "touch {mark}"')
    (directory / "settings.json").write_text(hooked)
    if is_trusted:
        ran = team.cli("trust", str(team.claude.work))
        assert ran.code == 0, ran.err
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    assert mark.exists() == is_trusted


@pytest.mark.storm
def test_r5_a_claude_that_is_held_as_it_is_is_observed(team: Team) -> None:
    team.claude.settings()
    (team.claude.config / ".claude.json").write_text(
        json.dumps(
            {
                "hasCompletedOnboarding": True,
                "hasSeenAutoDefaultNudge": True,
                "customApiKeyResponses": {
                    "approved": [team.claude.env["ANTHROPIC_API_KEY"][-20:]],
                    "rejected": [],
                },
                "projects": {str(team.claude.work): {"hasTrustDialogAccepted": True}},
            }
        )
    )
    team.pen.run(
        str(team.claude.program),
        "--permission-mode",
        "manual",
        name="amy",
        cwd=str(team.claude.work),
    )
    from tests.engines.team import Agent

    amy = Agent(team, "amy")
    amy.submit("[[hold h ; say seen]]")
    team.claude.wait_held("h")
    amy.wait("working")
    team.claude.release("h")
    amy.wait("idle")
    assert amy.conversation
    assert amy.explained()["decided_by"] == "engine state file"


def test_e3_a_missing_program_is_said_and_leaves_nothing(both: Team) -> None:
    both.pen.env["BULLPEN_CLAUDE_BIN"] = "/nowhere/claude"
    with pytest.raises(BullpenError, match="no program /nowhere/claude"):
        both.run()
    assert both.pen.agents() == {}


def test_e2_config_that_is_no_json_is_left_alone_and_said(both: Team) -> None:
    file = both.claude.config / ".claude.json"
    file.write_text('{"half": ')
    with pytest.raises(BullpenError, match="is not JSON"):
        both.run()
    assert file.read_text() == '{"half": '
    assert both.pen.agents() == {}


def test_e2_root_may_not_open_everything(both: Team) -> None:
    if os.geteuid() != 0:
        pytest.skip("only for root")
    both.role("worker", permission_mode="bypassPermissions")
    del both.pen.env["IS_SANDBOX"]
    with pytest.raises(BullpenError, match="bypassPermissions as root"):
        both.run()


def test_k_stop_ends_it_with_its_own_farewell(both: Team) -> None:
    amy = both.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    stopped = both.pen.stop("amy", 10)
    assert stopped["words"] == "exited (143)"
    assert signal.SIGTERM + 128 == 143

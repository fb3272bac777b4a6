"""Claude Code as an agent: its start, its conversation, what of a role takes effect."""

import json
import os
import signal
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from tests.at_terminal import AtTerminal
from tests.engines.team import Team
from tests.hub.pen import change_hub
from tests.hub.reboot import rebooted
from tests.processes import kill
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

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


def test_e3_w9_restart_goes_on_with_the_conversation_the_persona_and_the_repositorys_texts(
    team: Team,
) -> None:
    (team.claude.work / "CLAUDE.md").write_text("Think of cranes.\n")
    amy = team.run(team.boss(), prompt="Remember the word heron. [[say noted]]")
    amy.wait_said("noted")
    first = team.claude.model.turns[-1].body
    before = amy.conversation
    ran = team.cli("restart", "amy")
    assert ran.code == 0, ran.err
    amy.wait("idle")
    assert amy.conversation == before
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    last = team.claude.model.turns[-1].body
    assert "the word heron" in json.dumps(last)
    for request in (first, last):
        system = json.dumps(request["system"])
        assert system.index("You lead the herons.") < system.index("Write little.")
        assert "Think of cranes." in json.dumps(request)


@pytest.mark.storm
def test_b10_after_a_reboot_resume_goes_on_with_the_conversation(team: Team) -> None:
    amy = team.run(prompt="Remember the word heron. [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    # What its program has not written yet is lost with the machine.
    wait_until(lambda: "noted" in team.cli("transcript", "amy").out)
    rebooted(team.pen)
    assert "ended (reboot)" in team.cli("list").out
    ran = team.cli("resume")
    assert ran.code == 0, ran.err
    amy.wait("idle")
    assert amy.conversation == before
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    assert "heron" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_r5_run_of_a_stopped_name_says_that_a_new_conversation_begins(team: Team) -> None:
    amy = team.run(prompt="[[say noted]]")
    amy.wait_said("noted")
    first = amy.conversation
    words = ["run", "--role", "worker", "--name", "amy", "--detach"]
    team.pen.stop("amy", 5)
    resumed = team.cli(*words, "--resume")
    assert (resumed.code, resumed.err, amy.conversation) == (0, "", first)
    team.pen.stop("amy", 5)
    anew = team.cli(*words)
    again = f"bullpen run --role worker --name amy --resume {first}"
    assert "amy begins a new conversation · to go on with the last one instead" in anew.err
    assert f"bullpen stop amy, then {again}\n" in anew.err
    assert amy.conversation != first
    # and that is what it does
    team.pen.stop("amy", 5)
    back = team.cli(*again.split()[1:], "--detach")
    assert (back.code, amy.conversation) == (0, first), back.err


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


def test_e3_a_conversation_whose_transcript_is_gone_is_not_resumed_as_another(both: Team) -> None:
    amy = both.run(prompt="[[say noted]]")
    amy.wait_said("noted")
    both.pen.stop("amy", 5)
    for path in both.claude.config.glob("projects/*/*.jsonl"):
        path.unlink()
    with pytest.raises(BullpenError, match="its transcript is gone"):
        both.run(resume=True)
    both.run(prompt="[[say a new one]]")
    amy.wait_said("a new one")


def test_b8_a_restart_whose_transcript_is_gone_says_so(both: Team) -> None:
    amy = both.run(prompt="[[say noted]]")
    amy.wait_said("noted")
    first = amy.conversation
    both.pen.stop("amy", 5)
    for path in both.claude.config.glob("projects/*/*.jsonl"):
        path.unlink()
    ran = both.cli("restart", "amy")
    assert "a new conversation, the last one is not there" in ran.out, ran.err
    assert amy.conversation != first
    (event,) = both.pen.events("amy", "agent.conversation_lost")
    assert event["conversation"] == first
    wait_until(lambda: f"its conversation {first} is gone" in both.cli("inbox").out)


@pytest.mark.storm
def test_b8_a_restart_of_an_agent_to_which_nothing_was_said_tells_of_no_loss(both: Team) -> None:
    both.run()
    wait_until(lambda: both.pen.state("amy") == "idle")
    both.pen.stop("amy", 5)
    ran = both.cli("restart", "amy")
    assert (ran.code, "conversation" in ran.out) == (0, False), ran
    assert both.pen.events("amy", "agent.conversation_lost") == []


@pytest.mark.storm
def test_r5_at_a_terminal_run_of_a_stopped_name_asks_before_a_new_conversation_begins(
    both: Team,
) -> None:
    amy = both.run(prompt="[[say noted]]")
    amy.wait_said("noted")
    first = amy.conversation
    env = {**both.pen.env, "BULLPEN_DIR": str(both.pen.root)}
    for answer, goes_on in (("\n", True), ("n\n", False)):
        both.pen.stop("amy", 5)
        person = AtTerminal("run", "--role", "worker", "--name", "amy", **env)
        person.expect("amy has a conversation. Go on with it? [Y/n]")
        person.type(answer)
        wait_until(lambda: bool(both.pen.agents()["amy"]["running"]))
        assert (amy.conversation == first) == goes_on
        person.expect("leaves · amy goes on")  # attached
        person.type("\x1c")
        assert person.end() == 0
        assert ("begins a new conversation" in person.text) != goes_on


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


@pytest.mark.storm
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


@pytest.mark.storm
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
def test_w9_a_persona_reaches_the_model_and_is_not_in_the_tree(team: Team) -> None:
    make_repo(team.claude.work)
    amy = team.run(team.boss(worktree={"enabled": True}), prompt="[[say noted]]")
    amy.wait_said("noted")
    system = json.dumps(team.claude.model.turns[-1].body["system"])
    assert system.index("You lead the herons.") < system.index("Write little.")
    assert not list((team.pen.root / "worktrees" / "amy").glob("CLAUDE*"))


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


@pytest.mark.storm
@pytest.mark.parametrize("is_trusted", [False, True])
def test_e3_a_repositorys_texts_reach_the_model_and_its_hooks_run_only_if_it_is_trusted(
    team: Team, tmp_path: Path, is_trusted: bool
) -> None:
    mark = tmp_path / "planted"
    directory = team.claude.work / ".claude"
    directory.mkdir()
    hooked = json.dumps(HOOKED).replace('"command": ""', f'"command": "touch {mark}"')
    (directory / "settings.json").write_text(hooked)
    (team.claude.work / "CLAUDE.md").write_text("Think of herons.\n@AGENTS.md\n")
    (team.claude.work / "AGENTS.md").write_text("And of cranes.\n")
    if is_trusted:
        ran = team.cli("trust", str(team.claude.work))
        assert ran.code == 0, ran.err
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    assert amy.shown["not_used"] == ([] if is_trusted else [".claude/settings.json"])
    team.pen.stop("amy", 5)  # Bullpen itself has answered Claude Code's trust dialog by now
    team.run(prompt="[[say again]]")
    amy.wait_said("again")
    assert mark.exists() == is_trusted
    said = json.dumps(team.claude.model.turns[-1].body)
    assert "Think of herons." in said
    assert "And of cranes." in said


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


WRITTEN_OVER = """
from pathlib import Path
from bullpen.hub.holders.factory import Factory

hold = Factory.hold

async def hold_late(self, fields):
    Path({file!r}).write_text("{{}}")  # as by one that had read it before
    return await hold(self, fields)

Factory.hold = hold_late
"""


def test_e2_starts_without_a_dialog_although_another_claude_wrote_its_file_anew(both: Team) -> None:
    file = both.claude.config / ".claude.json"
    change_hub(both.pen, WRITTEN_OVER.format(file=str(file)))
    amy = both.run()
    amy.wait("idle")
    work = json.loads(file.read_text())["projects"][str(both.claude.work)]
    assert work["hasTrustDialogAccepted"] is True


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

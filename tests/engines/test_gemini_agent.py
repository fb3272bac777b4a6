"""Gemini CLI as an agent: its start, its conversation, what of a role takes effect, headless."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import get_engine
from bullpen.engines.gemini.home import without_comments
from bullpen.engines.gemini.rules import make_rules
from bullpen.engines.gemini.settings import make_settings
from bullpen.engines.lines import ModelText, RunOutcome, ToolDenied, ToolUsed, TurnBegun
from bullpen.errors import BullpenError
from bullpen.model.role import Role
from bullpen.model.state import Blocked, Idle, Working
from tests.engines.fake_gemini import FakeGemini
from tests.engines.headless import Headless
from tests.engines.team import Team, made_team
from tests.engines.tools import Tools
from tests.engines.tracing import contacted, strace
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).with_name("samples")
TOUCH = '[[tool run_shell_command {"command":"touch made"} ; say done]]'
WAITING = '{"command":"sh wait.sh"}'


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    with made_team(tmp_path, "gemini") as made:
        yield made


@pytest.fixture
def headless(tmp_path: Path) -> Iterator[Headless]:
    with FakeGemini() as model:
        yield Headless(tmp_path, "gemini", model)


@pytest.mark.storm
def test_e7_starts_without_a_dialog_and_works_through_a_turn(team: Team) -> None:
    amy = team.run()
    amy.wait("idle")
    amy.submit("[[hold a ; say hello there]]")
    amy.wait("working (thinking)")
    team.claude.model.wait_held("a")
    team.claude.model.release("a")
    amy.wait_said("hello there")
    assert amy.explained()["decided_by"] == "hook AfterAgent"


@pytest.mark.storm
def test_e7_a_prompt_that_begins_with_a_dash_is_a_prompt_and_a_restart_goes_on(
    team: Team,
) -> None:
    amy = team.run(prompt="--model heron\nsecond line [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    ran = team.cli("restart", "amy")
    assert ran.code == 0, ran.err
    amy.wait("idle")
    assert amy.conversation == before
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    assert amy.conversation == before
    assert "heron\\nsecond line" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_s1_a_permission_blocks_and_an_interrupt_and_an_error_end_the_turn(
    team: Team,
) -> None:
    amy = team.run(prompt=TOUCH)
    amy.wait("blocked (permission: run_shell_command)")
    amy.wait_screen("Allow execution")
    amy.type("1")
    amy.wait_said("done")
    assert (team.claude.work / "made").exists()
    amy.submit("[[hold a ; say never]]")
    amy.wait("working (thinking)")
    team.claude.model.wait_held("a")
    amy.type(get_engine("gemini").interrupt.decode())
    amy.wait("idle")
    amy.submit("[[status 401]]")
    amy.wait_screen("UNAUTHENTICATED")
    amy.wait("idle")


@pytest.mark.storm
def test_q4_what_it_asks_is_answered_in_its_terminal_as_approvals_and_list_say(team: Team) -> None:
    """A hook that waited for an answer from the inbox would keep its dialog from being shown."""
    options = [{"label": name, "description": name} for name in ("heron", "crane")]
    bird = {"header": "Bird", "question": "Which bird?", "type": "choice", "options": options}
    amy = team.run(prompt=f"[[tool ask_user {json.dumps({'questions': [bird]})} ; say so be it]]")
    amy.wait("blocked (question)")
    amy.wait_screen("Enter to select")
    there = "amy can only be answered in its terminal · bullpen attach amy\n"
    assert there in team.cli("list").out
    waiting = team.cli("approvals").out
    assert "amy  blocked (question)" in waiting
    assert "answer it in its terminal · bullpen attach amy" in waiting
    amy.type("\r")
    amy.wait_said("so be it")
    assert team.cli("approvals").out == "nothing waits for you\n"


@pytest.mark.storm
def test_s1_a_refusal_in_its_dialog_is_not_told_by_any_hook(team: Team) -> None:
    """A known gap, in `lacks`: this fails when a version begins to tell."""
    amy = team.run(prompt=TOUCH)
    amy.wait("blocked (permission: run_shell_command)")
    amy.wait_screen("Allow execution")
    amy.type("\x1b")
    amy.wait_screen("Request cancelled")
    amy.wait_ready()
    assert amy.words == "blocked (permission: run_shell_command)"
    amy.submit("[[say after it]]")
    amy.wait_said("after it")


@pytest.mark.storm
def test_r1_what_a_role_says_reaches_the_model(team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "hooked"
    team.role(
        "worker",
        model="gemini-2.5-pro",
        instructions="Always think of herons.",
        system_prompt="You are a wader.",
        env={"WORD": "egret"},
        hooks={"AfterTool": [{"matcher": "run_shell_command", "command": f"touch {mark}"}]},
        permissions={
            "allow": ["Bash(printenv:*)", "Bash(sh wait.sh)", "Bash(touch made)"],
            "deny": ["Bash(touch never:*)", "WebFetch"],
        },
    )
    (team.claude.home / ".gemini" / "GEMINI.md").write_text("The person likes reeds.")
    (team.claude.work / "wait.sh").write_text("until test -e go; do sleep 0.05; done")
    commands = ["printenv WORD", "touch made", "printenv PATH && touch never"]
    steps = [f"tool run_shell_command {json.dumps({'command': text})}" for text in commands]
    script = " ; ".join([*steps, f"tool run_shell_command {WAITING}", "say done"])
    amy = team.run(prompt=f"[[{script}]]")
    amy.wait("working (run_shell_command)")
    wait_until((team.claude.work / "made").exists)
    wait_until(lambda: len(team.claude.model.turns) == 4)
    (team.claude.work / "go").touch()
    amy.wait_said("done")
    wait_until(mark.exists)
    asked = team.claude.model.turns[-1]
    system, said = json.dumps(asked.body["systemInstruction"]), json.dumps(asked.body["contents"])
    assert "models/gemini-2.5-pro:" in asked.path
    assert system.startswith('{"parts": [{"text": "You are a wader.')
    assert "Always think of herons." in system
    assert "The person likes reeds." in system
    assert "egret" in said
    assert "denied by policy" in said
    assert not (team.claude.work / "never").exists()
    offered = [
        tool["name"] for each in asked.body["tools"] for tool in each["functionDeclarations"]
    ]
    assert "web_fetch" not in offered
    wait_until(lambda: amy.hooks().count("BeforeTool") == 4)  # ours go on beside the role's


@pytest.mark.storm
def test_e7_a_repositorys_own_settings_are_used_only_if_it_is_trusted(
    team: Team, tmp_path: Path
) -> None:
    mark = tmp_path / "planted"
    directory = team.claude.work / ".gemini"
    directory.mkdir()
    hook = {"hooks": [{"type": "command", "command": f"touch {mark}"}]}
    (directory / "settings.json").write_text(json.dumps({"hooks": {"BeforeAgent": [hook]}}))
    with pytest.raises(BullpenError, match="is not trusted, and Gemini CLI would do what it says"):
        team.run()
    assert team.pen.agents() == {}
    assert team.cli("trust", str(team.claude.work)).code == 0
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    assert mark.exists()
    wait_until(lambda: "AfterAgent" in amy.hooks())


@pytest.mark.storm
def test_e7_clear_begins_a_conversation_which_is_followed(team: Team) -> None:
    amy = team.run(prompt="The word is heron. [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    amy.wait_ready()
    amy.enter("/clear", lambda: amy.conversation != before, hint="Clear the screen")


@pytest.mark.storm
def test_o1_what_it_reports_is_what_the_model_counted(team: Team) -> None:
    team.role("worker", permissions={"allow": ["Bash(sleep:*)"]})
    amy = team.run(prompt='[[tool run_shell_command {"command":"sleep 0.5"} ; say done]]')
    amy.wait_said("done")
    model = team.claude.model

    def used() -> dict[str, Any]:
        rows = team.pen.client().get("usage")["rows"]
        return next((row["used"] for row in rows if row["name"] == "amy"), {})

    def is_counted() -> bool:
        """All that the model has answered so far; what it asks for by itself may come later."""
        answered = [asked for asked in model.requests if asked.usage != (0, 0)]
        found = used()
        spent = (found.get("input"), found.get("output"))
        return spent == model.usage and found["requests"] == len(answered) and found["tool_calls"]

    wait_until(is_counted, 120)
    found = used()
    assert (found["tool_calls"], found["usd"]) == (1, 0)
    assert 0.5 <= found["tool_seconds"] < 60
    assert team.pen.stop("amy", 15)["words"].startswith("exited")
    wait_until(is_counted)  # what it sends at its end adds nothing


@pytest.mark.storm
def test_k_stop_ends_it_with_its_own_farewell(team: Team) -> None:
    amy = team.run()
    amy.wait("idle")
    assert team.pen.stop("amy", 15)["words"] == "exited (0)"
    wait_until(lambda: "SessionEnd" in amy.hooks())


@pytest.mark.storm
def test_e6_nothing_but_loopback_is_contacted(
    team: Team,
    traced: Path,
    tmp_path: Path,
) -> None:
    script = tmp_path / "gemini"
    words = " ".join([*strace(traced), str(team.claude.program)])
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    team.pen.env["BULLPEN_GEMINI_BIN"] = str(script)
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    team.pen.stop("amy", 15)
    assert contacted(traced) == {"127.0.0.1"}


THINKING, SHELL, ENDED = Working(doing="thinking"), Working(tool="run_shell_command"), Idle()
ASKED = Blocked(on="permission", tool="run_shell_command")


def test_s1_what_recorded_hooks_say_of_its_state() -> None:
    lines = (SAMPLES / "gemini" / "hooks.jsonl").read_text().splitlines()
    hooks = [json.loads(line) for line in lines]
    told = [(h["hook_event_name"], get_engine("gemini").observe(h, 1.0)) for h in hooks]
    assert [(event, seen.state) for event, seen in told if seen] == [
        ("SessionStart", ENDED),
        ("BeforeAgent", THINKING),
        ("AfterAgent", ENDED),
        ("BeforeAgent", THINKING),
        ("BeforeTool", SHELL),
        ("Notification", ASKED),
        ("AfterTool", THINKING),
        ("AfterAgent", ENDED),
        ("BeforeAgent", THINKING),
        ("BeforeTool", SHELL),
        ("Notification", ASKED),  # Escape in its dialog: nothing follows
        ("BeforeAgent", THINKING),
        ("AfterAgent", ENDED),  # interrupted; then what was queued
        ("BeforeAgent", THINKING),
        ("AfterAgent", ENDED),
        ("BeforeAgent", THINKING),
        ("AfterAgent", ENDED),  # refused with 401
        ("SessionStart", ENDED),  # /clear
        ("BeforeAgent", THINKING),
        ("AfterAgent", ENDED),
    ]
    ids = {get_engine("gemini").conversation(hook) for hook in hooks} - {""}
    assert len(ids) == 2


# -- logins ----------------------------------------------------------------------------------


def test_e7_without_a_login_it_is_not_started(headless: Headless) -> None:
    del headless.program.env["GEMINI_API_KEY"]
    with pytest.raises(BullpenError, match="nobody is logged in to Gemini CLI"):
        headless.engine.prepare(headless.start("x"))


def test_e7_the_persons_login_and_settings_are_taken_over(headless: Headless) -> None:
    del headless.program.env["GEMINI_API_KEY"]
    theirs = headless.program.home / ".gemini"
    (theirs / "oauth_creds.json").write_text('{"refresh_token": "of the person"}')
    (theirs / "settings.json").write_text('{ // mine\n "ui": {"theme": "//x"}, /* , */ "hooks": 1}')
    (theirs / "policies").mkdir()
    (theirs / "policies" / "mine.toml").write_text("")
    start = headless.start("x")
    prepared = headless.engine.prepare(start)
    headless.engine.make_ready(start, prepared)
    own = headless.session / "gemini" / ".gemini"
    settings = json.loads((own / "settings.json").read_text())
    assert settings["security"]["auth"]["selectedType"] == "oauth-personal"
    assert settings["ui"]["theme"] == "//x"
    assert (own / "oauth_creds.json").readlink() == theirs / "oauth_creds.json"
    assert (own / "policies" / "mine.toml").exists()
    again = headless.start("x")
    again = type(again)(**{**vars(again), "env": {**again.env, **prepared.env}})
    headless.engine.make_ready(again, headless.engine.prepare(again))
    assert (own / "oauth_creds.json").readlink() == theirs / "oauth_creds.json"


def test_f4_a_sandboxed_agent_gets_no_credential_file(headless: Headless) -> None:
    theirs = headless.program.home / ".gemini"
    (theirs / "oauth_creds.json").write_text("{}")
    given = headless.start("x")
    start = type(given)(**{**vars(given), "is_sandboxed": True})
    prepared = headless.engine.prepare_run(start)
    headless.engine.make_ready(start, prepared)
    assert not (headless.session / "gemini-sandboxed" / ".gemini" / "oauth_creds.json").exists()
    assert prepared.argv[prepared.argv.index("--approval-mode") + 1] == "yolo"


# -- rules and settings, as text -------------------------------------------------------------


def test_q1_rules_become_a_policy() -> None:
    rules = {
        "allow": ["Bash(git status:*)", "Bash(make)", "mcp__fleet", "glob"],
        "deny": ["Read", "mcp__fleet__send"],
    }
    text = make_rules(Role(name="w", agent_type="gemini", permissions=rules))
    shell = "run_shell_command"
    assert tomllib.loads(text)["rule"] == [
        {"toolName": shell, "commandPrefix": "git status", "decision": "allow", "priority": 500},
        {"toolName": shell, "commandRegex": 'make"', "decision": "allow", "priority": 500},
        {"toolName": "*", "mcpName": "fleet", "decision": "allow", "priority": 500},
        {"toolName": "glob", "decision": "allow", "priority": 500},
        {"toolName": "read_file", "decision": "deny", "priority": 999},
        {"toolName": "send", "mcpName": "fleet", "decision": "deny", "priority": 999},
    ]


@pytest.mark.parametrize("rule", ["Read(./secret)", "Bash(git * --force)", "Bash(:*)"])
def test_q1_a_rule_that_gemini_cannot_hold_is_refused(rule: str) -> None:
    with pytest.raises(BullpenError, match="Gemini CLI has no such rule"):
        make_rules(Role(name="w", agent_type="gemini", permissions={"deny": [rule]}))


def test_e7_the_role_wins_over_the_person_and_hooks_of_all_are_kept(headless: Headless) -> None:
    start = headless.start(
        "x",
        settings={"ui": {"theme": "b"}, "context": {"fileName": "AGENTS.md"}},
        hooks={"BeforeTool": [{"command": "true", "timeout": 1.5}]},
    )
    person = {
        "ui": {"theme": "a", "hideTips": True},
        "privacy": {"usageStatisticsEnabled": True},
        "hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "mine"}]}]},
        "hooksConfig": {"enabled": False},
    }
    made = make_settings(start, start.role, person, "gemini-api-key")
    assert made["ui"] == {"theme": "b", "hideTips": True}
    assert made["privacy"] == {"usageStatisticsEnabled": True}
    assert made["hooksConfig"] == {"enabled": True}
    assert made["context"] == {"fileName": ["AGENTS.md", "GEMINI.md"]}
    actions = [group["hooks"][0] for group in made["hooks"]["BeforeTool"]]
    assert [action["command"] for action in actions] == ["mine", "true", "true"]
    assert actions[1]["timeout"] == 1500


def test_comments_are_taken_out_of_settings_and_nothing_else() -> None:
    text = '{"a": "// no \\" /* no */", /* yes\n */ "b": 1} // yes'
    assert json.loads(without_comments(text)) == {"a": '// no " /* no */', "b": 1}


# -- headless --------------------------------------------------------------------------------


@pytest.mark.storm
def test_e7_a_headless_run_succeeds_uses_tools_and_is_continued(headless: Headless) -> None:
    rules = {"allow": ["Bash(touch made:*)"], "deny": ["Bash(touch never:*)"]}
    script = (
        f"-word heron {TOUCH[:-12]} ; tool run_shell_command "
        '{"command":"touch never"} ; say done]]'
    )
    ran, lines = headless.run(headless.start(script, permissions=rules))
    assert ran.code == 0, ran.err
    begun, shell = lines[0], "run_shell_command"
    assert isinstance(begun, TurnBegun)
    used = [ToolUsed(shell, "touch made"), ToolUsed(shell, "touch never")]
    assert lines[1:5] == [*used, ToolDenied(shell), ModelText("done")]
    assert lines[5:] == [RunOutcome("", "", "", input_tokens=300, output_tokens=30)]
    assert (headless.program.work / "made").exists()
    ran, lines = headless.run(headless.start("[[say again]]", begun.conversation))
    assert (ran.code, lines[0], lines[1]) == (0, begun, ModelText("again"))
    assert "heron" in json.dumps(headless.program.model.turns[-1].body)


@pytest.mark.storm
def test_e7_a_headless_run_that_the_api_refuses_has_failed(headless: Headless) -> None:
    ran, lines = headless.run(headless.start("[[status 401]]"))
    assert ran.code == 145
    assert isinstance(lines[-1], RunOutcome)
    assert (lines[-1].fault, "scripted 401" in lines[-1].why) == ("engine_error", True)


@pytest.mark.storm
def test_e7_a_headless_run_calls_a_tool_of_a_server(headless: Headless) -> None:
    with Tools() as tools:
        header = {"Authorization": "Bearer $BULLPEN_TOKEN"}
        server = {"httpUrl": tools.url, "headers": header}
        script = '[[tool mcp_fleet_whoami {"note":"x"} ; say done]]'
        rules = {"allow": ["mcp__fleet"]}
        settings = {"mcpServers": {"fleet": server}}
        ran, lines = headless.run(headless.start(script, settings=settings, permissions=rules))
    assert ran.code == 0, ran.err
    assert [call["arguments"] for call in tools.called] == [{"note": "x"}]
    assert tools.refused == 0
    assert ToolUsed("mcp_fleet_whoami") in lines
    assert "amy the heron" in json.dumps(headless.program.model.turns[-1].body)

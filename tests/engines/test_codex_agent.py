"""Codex as an agent: its start, its conversation, what of a role takes effect, headless runs."""

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import get_engine
from bullpen.engines.codex.config import make_config
from bullpen.engines.codex.rules import make_rules
from bullpen.engines.codex.toml import to_toml
from bullpen.engines.lines import ModelText, RunOutcome, ToolUsed, TurnBegun
from bullpen.errors import BullpenError
from bullpen.model.role import Role
from bullpen.model.state import Idle, Working
from tests.engines.headless import Headless
from tests.engines.programs import TitledOpenAI
from tests.engines.team import Team, made_team
from tests.engines.tools import Tools
from tests.engines.tracing import contacted, strace
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).with_name("samples")
SILENT = "unknown (Codex says nothing before its first prompt)"
ESCALATED = '"sandbox_permissions":"require_escalated","justification":"to see"'
WAITING = '[[tool exec_command {"cmd":"until test -e go; do sleep 0.05; done"} ; say gone on]]'


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    with made_team(tmp_path, "codex") as made:
        yield made


@pytest.fixture
def headless(tmp_path: Path) -> Iterator[Headless]:
    with TitledOpenAI() as model:
        yield Headless(tmp_path, "codex", model)


def test_e7_starts_without_a_dialog_and_works_through_a_turn(team: Team) -> None:
    amy = team.run()
    amy.wait_ready()
    assert amy.words == SILENT
    amy.submit("[[hold a ; say hello there]]")
    amy.wait("working (thinking)")
    team.claude.model.wait_held("a")
    assert amy.conversation
    team.claude.model.release("a")
    amy.wait_said("hello there")
    assert amy.explained()["decided_by"] == "hook Stop"


@pytest.mark.storm
def test_e7_a_prompt_of_several_lines_that_begins_with_a_dash_is_one_prompt(
    team: Team,
) -> None:
    amy = team.run(prompt="--model x\nsecond line [[say taken as it is]]")
    amy.wait_said("taken as it is")
    amy.submit("third line\nfourth line [[say and this]]")
    amy.wait_said("and this")
    assert "third line\\nfourth line" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_e7_restart_goes_on_with_the_conversation(team: Team) -> None:
    amy = team.run(prompt="Remember the word heron. [[say noted]]")
    amy.wait_said("noted")
    before = amy.conversation
    ran = team.cli("restart", "amy")
    assert ran.code == 0, ran.err
    assert amy.conversation == before
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    assert amy.conversation == before
    assert "heron" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_s1_a_tool_shows_while_it_runs(team: Team) -> None:
    amy = team.run(prompt=WAITING)
    amy.wait("working (Bash)")
    (team.claude.work / "go").touch()
    amy.wait_said("gone on")


@pytest.mark.storm
def test_s1_an_interrupt_is_told(team: Team) -> None:
    amy = team.run(prompt="[[hold a ; say never]]")
    amy.wait("working (thinking)")
    team.claude.model.wait_held("a")
    amy.type(get_engine("codex").interrupt.decode())
    amy.wait("idle")
    assert amy.explained()["decided_by"] == "hook Interrupt"
    amy.submit("[[say after it]]")
    amy.wait_said("after it")


@pytest.mark.storm
def test_q3_what_needs_a_person_waits_in_the_inbox(team: Team) -> None:
    team.role("worker", settings={"sandbox_mode": "read-only"})
    made = team.claude.work / "made"
    amy = team.run(prompt=f'[[tool exec_command {{"cmd":"touch made",{ESCALATED}}} ; say done]]')
    amy.wait("blocked (permission: Bash)")
    amy.wait_listed()
    assert not made.exists()
    ran = team.cli("approve", "1")
    assert ran.code == 0, ran.err
    amy.wait_said("done")
    assert made.exists()


@pytest.mark.storm
def test_q3_a_refusal_from_the_inbox_reaches_the_model(team: Team) -> None:
    team.role("worker", settings={"sandbox_mode": "read-only"})
    amy = team.run(prompt=f'[[tool exec_command {{"cmd":"touch made",{ESCALATED}}} ; say done]]')
    amy.wait("blocked (permission: Bash)")
    amy.wait_listed()
    ran = team.cli("deny", "1", "--reason", "herons nest here")
    assert ran.code == 0, ran.err
    amy.wait_said("done")
    assert not (team.claude.work / "made").exists()
    assert "herons nest here" in json.dumps(team.claude.model.turns[-1].body)


@pytest.mark.storm
def test_r1_what_a_role_says_reaches_the_model(team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "hooked"
    team.role(
        "worker",
        model="gpt-5-codex",
        instructions="Always think of herons.",
        system_prompt="You are a wader.",
        env={"WORD": "egret"},
        settings={"model_reasoning_effort": "low"},
        hooks={"PostToolUse": [{"matcher": "Bash", "command": f"touch {mark}"}]},
        permissions={"allow": ["Bash(printenv:*)"], "deny": ["Bash(touch:*)"]},
    )
    script = 'tool exec_command {"cmd":"printenv WORD"} ; tool exec_command {"cmd":"ls && touch x"}'
    amy = team.run(prompt=f"[[{script} ; say done]]")
    amy.wait_said("done")
    wait_until(mark.exists)
    body = team.claude.model.turns[-1].body
    said = json.dumps(body)
    assert body["model"] == "gpt-5-codex"
    assert "Always think of herons." in said
    assert body["input"][0]["content"][0]["text"] == "You are a wader."
    assert "egret" in said
    assert "policy forbids commands starting with `touch`" in said
    assert not (team.claude.work / "x").exists()
    wait_until(lambda: amy.hooks().count("PreToolUse") == 2)  # ours go on beside the role's


@pytest.mark.storm
def test_e7_a_repositorys_own_settings_are_used_only_if_it_is_trusted(team: Team) -> None:
    directory = team.claude.work / ".codex"
    directory.mkdir()
    team.run(name="bob")  # an empty one says nothing: Codex's own sandbox makes some
    (directory / "config.toml").write_text('model = "planted"\n')
    with pytest.raises(BullpenError, match="is not trusted, and Codex would stop at a dialog"):
        team.run()
    assert list(team.pen.agents()) == ["bob"]
    assert team.cli("trust", str(team.claude.work)).code == 0
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    assert team.claude.model.turns[-1].body["model"] == "planted"


@pytest.mark.parametrize("below", [".", "src"])
def test_e7_a_run_leaves_out_settings_that_nobody_trusts_and_reads_the_texts(
    headless: Headless, tmp_path: Path, below: str
) -> None:
    work, hooked, planted = headless.program.work, tmp_path / "hooked", tmp_path / "planted"
    (work / ".git").mkdir()
    (work / ".codex").mkdir()
    (work / below).mkdir(exist_ok=True)
    server = f'[mcp_servers.x]\ncommand = "touch"\nargs = ["{planted}"]\n'
    (work / ".codex/config.toml").write_text(f'model = "planted"\n{server}')
    (work / "AGENTS.md").write_text("Think of herons.")
    start = replace(headless.start("[[say hi]]"), hook=("touch", str(hooked)))
    headless.program.work = work / below
    ran, _ = headless.run(replace(start, cwd=str(work / below)))
    assert ran.code == 0, ran.err
    body = headless.model.turns[-1].body
    assert body["model"] != "planted"
    assert json.dumps(body).count("Think of herons.") == 1
    assert not planted.exists()
    assert hooked.exists(), "hooks of ours go on"


@pytest.mark.storm
def test_e7_starts_in_a_worktree_without_a_dialog(team: Team) -> None:
    work = team.claude.work
    for words in (
        ["init", "-q", "-b", "main"],
        ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", work, *words], check=True, timeout=60)
    team.role("worker", worktree={"enabled": True})
    amy = team.run(prompt="[[say from a tree]]")
    amy.wait_said("from a tree")
    assert amy.shown["cwd"] != str(work)


@pytest.mark.storm
def test_e7_a_login_is_taken_over_as_a_link_and_a_session_survives_a_restart(
    team: Team,
) -> None:
    login = team.claude.config / "auth.json"
    login.write_text(json.dumps({"OPENAI_API_KEY": "sk-of-the-person"}))
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    own = team.pen.session("amy") / "codex" / "auth.json"
    assert own.readlink() == login
    assert team.cli("restart", "amy").code == 0
    amy.submit("[[say again]]")
    amy.wait_said("again")
    assert own.readlink() == login
    assert json.loads(login.read_text())["OPENAI_API_KEY"] == "sk-of-the-person"


@pytest.mark.storm
def test_e7_a_key_in_the_environment_is_login_enough(team: Team) -> None:
    """By itself Codex takes no notice of it in a terminal, and asks how to sign in."""
    url = f"{team.claude.model.url}/v1"
    (team.claude.config / "config.toml").write_text(f'openai_base_url = "{url}"\n')
    with pytest.raises(BullpenError, match="nobody is logged in to Codex"):
        team.run()
    assert team.pen.agents() == {}
    team.pen.env["CODEX_API_KEY"] = "sk-of-the-person"
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")


@pytest.mark.storm
def test_s1_a_turn_that_failed_is_not_told_by_any_hook(team: Team) -> None:
    """A known gap, in `lacks`: this fails when a version begins to tell."""
    amy = team.run(prompt="[[status 401]]")
    amy.wait_screen("401 Unauthorized")
    amy.wait_ready()
    assert amy.words == "working (thinking)"
    amy.submit("[[say after it]]")
    amy.wait_said("after it")
    wait_until(lambda: "Stop" in amy.hooks())
    assert amy.hooks() == ["SessionStart", "UserPromptSubmit", "UserPromptSubmit", "Stop"]


@pytest.mark.storm
def test_o1_what_it_reports_is_what_the_model_counted(team: Team) -> None:
    amy = team.run(prompt='[[tool exec_command {"cmd":"sleep 0.5"} ; say done]]')
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
def test_k_stop_ends_it(team: Team) -> None:
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    assert team.pen.stop("amy", 10)["words"].startswith("exited")


@pytest.mark.storm
def test_e6_nothing_but_loopback_is_contacted(
    team: Team,
    traced: Path,
    tmp_path: Path,
) -> None:
    script = tmp_path / "codex"
    words = " ".join([*strace(traced), str(team.claude.program)])
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    team.pen.env["BULLPEN_CODEX_BIN"] = str(script)
    amy = team.run(prompt="[[say hi]]")
    amy.wait_said("hi")
    amy.submit("[[say and again]]")
    amy.wait_said("and again")
    team.pen.stop("amy", 10)
    assert contacted(traced) == {"127.0.0.1"}


# -- hooks and their trust -------------------------------------------------------------------


def test_e7_codex_itself_says_that_all_hooks_are_trusted(headless: Headless) -> None:
    """By the hash that it makes of each; a version that makes another one fails here."""
    hooks = {
        "PreToolUse": [{"matcher": "Bash", "command": "echo 'a\n\"é\"'", "timeout": 1.5}],
        "SessionStart": [{"matcher": "startup", "command": "true"}],
        "PreCompact": [{"matcher": "auto", "command": "true"}],
        "SubagentStart": [{"matcher": "x", "command": "true"}],
        "Stop": [{"matcher": "ignored", "command": "true"}],
        "UserPromptSubmit": [
            {"hooks": [{"type": "command", "command": "true", "statusMessage": "one moment"}]}
        ],
    }
    start = headless.start("[[say hi]]", hooks=hooks)
    prepared = headless.engine.prepare(start)
    headless.engine.make_ready(start, prepared)
    server = subprocess.Popen(
        [headless.program.program, "app-server"],
        env={**start.env, **prepared.env},
        cwd=start.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    client = {"clientInfo": {"name": "test", "title": "test", "version": "1"}}
    asked = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [start.cwd]}},
    ]
    try:
        server.stdin.write("".join(json.dumps(line) + "\n" for line in asked))
        server.stdin.flush()
        answers = (json.loads(line) for line in server.stdout)
        found = next(answer for answer in answers if answer.get("id") == 2)["result"]["data"]
    finally:
        server.kill()
        server.communicate(timeout=60)
    listed = [hook for entry in found for hook in entry["hooks"]]
    assert len(listed) == 12 + 6
    assert {
        (hook["key"], hook["trustStatus"]) for hook in listed if hook["trustStatus"] != "trusted"
    } == set()
    assert [entry["warnings"] for entry in found] == [[]]


THINKING, SHELL, ENDED = Working(doing="thinking"), Working(tool="Bash"), Idle()


def test_s1_what_recorded_hooks_say_of_its_state() -> None:
    lines = (SAMPLES / "codex" / "hooks.jsonl").read_text().splitlines()
    hooks = [json.loads(line) for line in lines]
    told = [get_engine("codex").observe(hook, 1.0) for hook in hooks]
    assert [
        (hook["hook_event_name"], seen and seen.state)
        for hook, seen in zip(hooks, told, strict=True)
    ] == [
        ("SessionStart", ENDED),
        ("UserPromptSubmit", THINKING),
        ("Stop", ENDED),
        ("UserPromptSubmit", THINKING),  # refused with 401: nothing follows
        ("UserPromptSubmit", THINKING),
        ("PreToolUse", SHELL),
        ("PermissionRequest", None),
        ("Interrupt", ENDED),  # Escape in its dialog
        ("UserPromptSubmit", THINKING),
        ("PreToolUse", SHELL),
        ("PermissionRequest", None),
        ("PostToolUse", THINKING),
        ("Stop", ENDED),
        ("PreCompact", Working(doing="compacting")),
        ("PostCompact", ENDED),
    ]


# -- rules and configuration, as text --------------------------------------------------------


def test_q1_rules_become_codex_rules() -> None:
    rules = {"allow": ["Bash(git status:*)"], "deny": ["Bash(git push:*)", "Bash(rm -rf /)"]}
    text = make_rules(Role(name="w", agent_type="codex", permissions=rules))
    assert text.splitlines() == [
        'prefix_rule(pattern=["git", "status"], decision="allow")',
        'prefix_rule(pattern=["git", "push"], decision="forbidden")',
        'prefix_rule(pattern=["rm", "-rf", "/"], decision="forbidden")',
    ]


@pytest.mark.parametrize(
    "rules",
    [
        {"deny": ["Read(./secret)"]},
        {"deny": ["Bash"]},
        {"deny": ["mcp__fleet"]},
        {"allow": ["Bash(git status)"]},
        {"deny": ["Bash(git * --force)"]},
        {"deny": ["Bash('unclosed)"]},
    ],
)
def test_q1_a_rule_that_codex_cannot_hold_is_refused(rules: dict[str, list[str]]) -> None:
    with pytest.raises(BullpenError, match="Codex has no such rule"):
        make_rules(Role(name="w", agent_type="codex", permissions=rules))


def test_e7_the_persons_settings_are_taken_over_but_not_their_hooks_and_trust(
    headless: Headless,
) -> None:
    start = headless.start("x", settings={"tui": {"theme": "b"}, "model": None})
    person = {
        "model_provider": "mine",
        "hooks": {"Stop": []},
        "projects": {"/": {"trust_level": "trusted"}},
        "tui": {"theme": "a", "vim": True},
        "features": {"plugins": True},
    }
    config = make_config(start, start.role, person)
    assert config["model_provider"] == "mine"
    assert config["tui"] == {"theme": "b", "vim": True}
    assert config["features"] == {"plugins": False}
    assert list(config["projects"]) == [start.cwd]
    assert len(config["hooks"]["Stop"]) == 1
    assert "model =" not in to_toml(config)


# -- headless --------------------------------------------------------------------------------


@pytest.mark.storm
def test_e7_a_headless_run_succeeds_uses_a_tool_and_is_continued(headless: Headless) -> None:
    script = '-word heron [[tool exec_command {"cmd":"echo hi"} ; say done]]'
    ran, lines = headless.run(headless.start(script))
    assert ran.code == 0, ran.err
    begun = lines[0]
    assert isinstance(begun, TurnBegun)
    shell = pwd.getpwuid(os.getuid()).pw_shell
    assert lines[1:3] == [ToolUsed("Bash", f"{shell} -lc 'echo hi'"), ModelText("done")]
    assert lines[3:] == [RunOutcome("", "", "", input_tokens=200, output_tokens=20)]
    ran, lines = headless.run(headless.start("[[say again]]", begun.conversation))
    assert (ran.code, lines[0], lines[1]) == (0, begun, ModelText("again"))
    assert "heron" in json.dumps(headless.program.model.turns[-1].body)


def test_e7_a_long_prompt_is_taken_whole(headless: Headless) -> None:
    ran, lines = headless.run(headless.start("word " * 60_000 + "[[say read]]"))
    assert (ran.code, lines[1]) == (0, ModelText("read"))


@pytest.mark.parametrize(("status", "fault"), [(401, "engine_error"), (429, "rate_limit")])
def test_e7_a_headless_run_that_the_api_refuses_has_failed(
    headless: Headless, status: int, fault: str
) -> None:
    ran, lines = headless.run(headless.start(f"[[status {status}]]"))
    assert ran.code == 1
    assert isinstance(lines[-1], RunOutcome)
    assert lines[-1].fault == fault
    assert str(status) in lines[-1].why


def test_e7_a_headless_run_calls_a_tool_of_a_server(headless: Headless) -> None:
    with Tools() as tools:
        server = {"url": tools.url, "bearer_token_env_var": "BULLPEN_TOKEN"}
        script = '[[tool mcp__fleet/whoami {"note":"x"} ; say done]]'
        start = headless.start(script, settings={"mcp_servers": {"fleet": server}})
        ran, lines = headless.run(start)
    assert ran.code == 0, ran.err
    assert [call["arguments"] for call in tools.called] == [{"note": "x"}]
    assert tools.refused == 0
    assert ToolUsed("mcp__fleet__whoami") in lines
    assert "amy the heron" in json.dumps(headless.program.model.turns[-1].body)

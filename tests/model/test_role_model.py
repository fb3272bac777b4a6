import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.home.check import check, check_data
from bullpen.home.yamlfile import parse
from bullpen.model.role import PERMISSION_MODES, Role

FILE = Path("coder.yaml")


def problems(text: str) -> list[tuple[int, str, str]]:
    role, found = check(Role, parse(FILE, text))
    assert (role is None) == bool(found)
    return [(problem.line, problem.key, problem.message) for problem in found]


def role(text: str) -> Role:
    found, wrong = check(Role, parse(FILE, f"name: coder\n{text}"))
    assert found is not None, wrong
    return found


def test_r1_every_field() -> None:
    found = role(
        """
description: Writes code
agent_type: claude
model: opus
permission_mode: plan
system_prompt: You are.
instructions: Do it.
root_dir: ~/code
claude_config_dir: session
permissions:
  allow: [Read, "Bash(git commit:*)", mcp__github__get_issue, mcp__bullpen, mcp__x__*]
  deny: ["Read(./.env)"]
  agent: {enabled: true, instructions: Be careful., model: sonnet}
heartbeat: {idle_timeout: 1h30m, message: Go on, condition: test -f x}
worktree: {enabled: true, branch_from: main, use_detached_head: true, copy: [.env], setup: npm ci}
sandbox: {enabled: false, allow_network: false, read_only_paths: [/a], read_write_paths: [/b]}
hooks:
  PostToolUse:
    - {matcher: Bash, command: notify, timeout: 10}
    - matcher: Edit
      hooks: [{type: http, url: "http://127.0.0.1:1/", headers: {A: b}}]
settings: {includeCoAuthoredBy: false}
env: {A: b}
capabilities: [delegate]
labels: {gpu: yes}
may_grant: coder
budget: {tokens: 1000, usd: 2, minutes: 30}
"""
    )
    assert found.heartbeat.idle_timeout is not None
    assert found.heartbeat.idle_timeout.total_seconds() == 5400
    assert found.worktree.copy_globs == (".env",)
    assert found.permissions.agent.is_on
    assert found.labels == {"gpu": "yes"}
    assert found.budget.usd == 2
    again, wrong = check_data(Role, json.loads(found.model_dump_json(by_alias=True)))
    assert (again, wrong) == (found, [])


def test_r1_defaults() -> None:
    found = role("")
    assert (found.agent_type, found.root_dir, found.worktree.enabled) == ("claude", ".", False)
    assert found.sandbox.enabled is None
    assert found.sandbox.allow_network
    assert not found.permissions.agent.is_on


def test_r1_a_program_has_a_command_and_takes_lines() -> None:
    found = role("agent_type: command\ncommand: my-agent --log 'a b'\ndeliver: lines\n")
    assert found.command == ("my-agent", "--log", "a b")
    assert role("agent_type: command\ncommand: [my-agent, a b]").command == ("my-agent", "a b")


def test_a_block_with_nothing_in_it_is_not_set() -> None:
    assert role("heartbeat:\n  # idle_timeout: 10m\npermissions:\nmodel:\n") == role("")
    assert problems("name: coder\nmodle:\n") == [(2, "modle", "unknown key · did you mean model?")]


def test_r1_the_reviewer_is_on_when_it_has_instructions() -> None:
    assert role("permissions: {agent: {instructions: x}}").permissions.agent.is_on
    assert not role("permissions: {agent: {instructions: ' '}}").permissions.agent.is_on
    off = role("permissions: {agent: {instructions: x, enabled: false}}")
    assert not off.permissions.agent.is_on


def test_r2_all_errors_of_a_file_at_once() -> None:
    found = problems(
        """name: Coder!
modle: opus
agent_type: cluade
permissions:
  allow: [Bash, "Bash(git", 7]
  agent:
    enabled: true
heartbeat:
  idle_timeout: tomorrow
worktree:
  enabled: 1
  enbaled: true
settings:
  hooks: {}
  permissions: {}
budget:
  tokens: "3"
"""
    )
    assert [(line, key) for line, key, _ in found] == [
        (1, "name"),
        (2, "modle"),
        (3, "agent_type"),
        (5, "permissions.allow.1"),
        (5, "permissions.allow.2"),
        (6, "permissions.agent.instructions"),
        (9, "heartbeat.idle_timeout"),
        (11, "worktree.enabled"),
        (12, "worktree.enbaled"),
        (14, "settings.hooks"),
        (15, "settings.permissions"),
        (17, "budget.tokens"),
    ]


WRONG = [
    ("description: 3", "description", '3 is no text · in quotes it is: "3"'),
    ("descripton: x", "descripton", "unknown key · did you mean description?"),
    ("zzz: x", "zzz", "unknown key"),
    ("permissions: {alow: []}", "permissions.alow", "unknown key · did you mean allow?"),
    ("permissions: {agent: {modle: x}}", "permissions.agent.modle", "did you mean model?"),
    ("agent_type: cluade", "agent_type", "did you mean claude? · one of claude, gemini, codex"),
    ("agent_type: [claude]", "agent_type", "a list is not allowed · one of claude"),
    ("model: --danger", "model", "one word that does not begin with -"),
    ("instructions: ' '", "instructions", "is empty"),
    ("permission_mode: delegate", "permission_mode", "use manual, with capabilities: [delegate]"),
    ("permission_mode: yolo", "permission_mode", '"yolo" is no mode of claude · use bypass'),
    ("permission_mode: acceptedits", "permission_mode", "did you mean acceptEdits? · one of"),
    ("permission_mode: 3", "permission_mode", "3 is no text"),
    ("agent_type: gemini\npermission_mode: plann", "permission_mode", "no mode of gemini"),
    ("permissions: {allow: Bash}", "permissions.allow", '"Bash" is no list · write ["Bash"]'),
    ("permissions: {deny: ['Bash()']}", "permissions.deny.0", "Tool or Tool(pattern)"),
    ("permissions: {deny: ['Bash(a']}", "permissions.deny.0", "Tool or Tool(pattern)"),
    ("permissions: {deny: ['Bash (a)']}", "permissions.deny.0", "Tool or Tool(pattern)"),
    ("permissions: {deny: ['bash(rm:*)']}", "permissions.deny.0", "did you mean Bash?"),
    ("permissions: {deny: ['mcp__']}", "permissions.deny.0", "mcp__server__tool"),
    ("permissions: {deny: ['mcp__a(b)']}", "permissions.deny.0", "mcp__server__tool"),
    ("permissions: {agent: {enabled: true}}", "permissions.agent.instructions", "required with"),
    ("permissions: {agent: {enabled: yes}}", "permissions.agent.enabled", "neither true nor"),
    ("heartbeat: {idle_timeout: 600}", "heartbeat.idle_timeout", "600 is no duration · e.g. 90s"),
    ("heartbeat: {idle_timeout: '600'}", "heartbeat.idle_timeout", '"600" is no duration'),
    ("heartbeat: {idle_timeout: 0s}", "heartbeat.idle_timeout", "too short"),
    ("heartbeat: {idle_timeout: [1m]}", "heartbeat.idle_timeout", "a list is no duration"),
    ("heartbeat: {message: x}", "heartbeat.message", "needs heartbeat.idle_timeout"),
    ("worktree: true", "worktree", "true is no block of `key: value` lines"),
    ("worktree: {enabled: 'true'}", "worktree.enabled", '"true" is neither true nor false'),
    ("worktree: {enabled: 1}", "worktree.enabled", "1 is neither true nor false"),
    ("worktree: {copy: [../x]}", "worktree.copy.0", "leaves the repository"),
    ("worktree: {copy: [/etc/x]}", "worktree.copy.0", "leaves the repository"),
    ("worktree: {copy: [~/.netrc]}", "worktree.copy.0", "leaves the repository"),
    ("sandbox: {processes: 15}", "sandbox.processes", "16"),
    ("worktree: {branch_from: -x}", "worktree.branch_from", "does not begin with -"),
    ("hooks: {PostTooluse: [{command: x}]}", "hooks.PostTooluse", "did you mean PostToolUse?"),
    ("hooks: {Stop: {command: x}}", "hooks.Stop", "a block is no list"),
    ("hooks: {Stop: [{matcher: x}]}", "hooks.Stop.0.command", "is required"),
    ("hooks: {Stop: [{command: x, timeout: 5m}]}", "hooks.Stop.0.timeout", "is no number"),
    ("hooks: {Stop: [{hooks: [{type: cmd}]}]}", "hooks.Stop.0.hooks.0.type", "one of command"),
    ("settings: {hooks: {}}", "settings.hooks", "use the role's own field: hooks"),
    ("settings: {permissions: {}}", "settings.permissions", "own field: permissions"),
    ("env: {BULLPEN_DIR: x}", "env.BULLPEN_DIR", "set by Bullpen itself"),
    ("env: {'A B': x}", "env.A B", "letters, digits and _"),
    ("command: x", "command", "only with agent_type: command, not claude"),
    ("deliver: lines", "deliver", "only with agent_type: command, not claude"),
    ("agent_type: command", "command", "required with agent_type: command"),
    ('agent_type: command\ncommand: "a \'b"', "command", "No closing quotation"),
    (
        "agent_type: command\ncommand: x\ndeliver: words",
        "deliver",
        "one of lines, lines-from-agents",
    ),
    ("agent_type: command\ncommand: x\npermission_mode: plan", "permission_mode", "has no perm"),
    ("capabilities: [delgate]", "capabilities.0", "only delegate"),
    ("labels: {gpu: 1}", "labels.gpu", '1 is no text · in quotes it is: "1"'),
    ("may_grant: Coder", "may_grant", "is not allowed"),
    ("budget: {tokens: 0}", "budget.tokens", "0 is too small · more than 0"),
    ("budget: {tokens: 1.5}", "budget.tokens", "1.5 is no whole number"),
    ("budget: {tokens: true}", "budget.tokens", "true is no whole number"),
    ("budget: {usd: true}", "budget.usd", "true is no number"),
    ("budget: {usd: -1}", "budget.usd", "too small"),
    ("budget: {minutes: 30m}", "budget.minutes", '"30m" is no whole number'),
]


@pytest.mark.parametrize(("text", "key", "says"), WRONG)
def test_r2_what_is_wrong_and_what_is_allowed(text: str, key: str, says: str) -> None:
    ((_, found_key, message),) = problems(f"name: coder\n{text}\n")
    assert found_key == key
    assert says in message


def test_r2_a_role_needs_a_name_and_must_be_a_block() -> None:
    assert problems("description: x\n") == [(1, "name", "is required")]
    assert problems("- name\n") == [(1, "", "a list is no block of `key: value` lines")]
    assert problems("") == [(1, "", "the file is empty")]


def test_r2_faults_of_form_and_of_content_are_shown_together() -> None:
    found = problems("name: coder\nmodle: x\nmodel: a\nmodel: b\n")
    assert [(line, key) for line, key, _ in found] == [(2, "modle"), (4, "model")]


@pytest.mark.parametrize("mode", PERMISSION_MODES["claude"])
def test_r1_the_engines_real_permission_modes(mode: str) -> None:
    assert role(f"permission_mode: {mode}").permission_mode == mode


@pytest.mark.parametrize(
    "text",
    [
        "env: {TOKEN: 4815162342}",
        "env: {TOKEN: [4815162342]}",
        "env: TOKEN=4815162342",
        "env: [TOKEN=4815162342]",
        "env: {BULLPEN_TOKEN: '4815162342'}",
        "env: {TOKEN: &x 4815162342, OTHER: *x}",
        "enviroment: {TOKEN: 4815162342}",
    ],
)
def test_r2_values_of_variables_are_never_shown(text: str) -> None:
    found = problems(f"name: coder\n{text}\n")
    assert found
    assert "4815162342" not in str(found)


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("10m")
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["enabled", "allow", "agent", "hooks", "Stop", "type", "x", "env"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*Role.key_names(), "x"]), values, max_size=8))
def test_r2_any_data_are_a_role_or_plain_words(data: dict[str, object]) -> None:
    found, wrong = check_data(Role, data)
    assert (found is None) == bool(wrong)
    for _, message in wrong:
        assert not any(word in message for word in ("Input should", "pydantic", "validator"))


@given(st.text(max_size=80), st.sampled_from(["{0}", "name: {0}", "name: a\nmodel: {0}"]))
def test_r2_any_text_is_a_role_or_problems(text: str, form: str) -> None:
    problems(form.replace("{0}", text))

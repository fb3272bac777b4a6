"""Claude Code's files, flags and lines, as the engine makes and reads them. Nothing is started."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import Start, get_engine
from bullpen.engines.claude import config, limits
from bullpen.engines.claude.failures import find_failure
from bullpen.engines.claude.settings import TOLD, check
from bullpen.engines.lines import RunOutcome
from bullpen.errors import BullpenError, Kind
from bullpen.model.role import Role
from bullpen.model.state import Blocked, Idle, Working
from tests.engines.starts import KEYS, agent_of, start_of

CLAUDE = get_engine("claude")
CONVERSATION = "0123abcd-0123-4567-89ab-0123456789ab"


def flag(argv: tuple[str, ...], name: str) -> str:
    """The one word behind a flag."""
    assert argv.count(name) == 1, (name, argv)
    return argv[argv.index(name) + 1]


# -- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["prepare", "prepare_run"])
def test_e3_a_repositorys_own_settings_count_only_if_it_is_trusted(
    way: str, tmp_path: Path
) -> None:
    start = start_of(tmp_path, "claude")
    prepared = getattr(CLAUDE, way)(start)
    assert flag(prepared.argv, "--setting-sources") == "user"
    trusted = getattr(CLAUDE, way)(replace(start, is_trusted=True))
    assert not {"--setting-sources", "--add-dir"} & set(trusted.argv)


def test_e3_servers_of_a_trusted_repository_stand_beside_ours(tmp_path: Path) -> None:
    start = replace(start_of(tmp_path, "claude"), servers={"bullpen": "http://127.0.0.1:7/mcp"})
    of_repo = {"mcpServers": {"own": {"command": "x"}, "bullpen": {"command": "planted"}}}
    Path(start.cwd, ".mcp.json").write_text(json.dumps(of_repo))
    file = start.session / "mcp.json"
    for is_trusted, names in ((False, {"bullpen"}), (True, {"bullpen", "own"})):
        prepared = CLAUDE.prepare(start)
        file.write_text(prepared.files["mcp.json"])
        CLAUDE.make_ready(replace(start, is_trusted=is_trusted), prepared)
        servers = json.loads(file.read_text())["mcpServers"]
        assert servers.keys() == names
        assert servers["bullpen"]["url"] == "http://127.0.0.1:7/mcp"


@pytest.mark.parametrize("way", ["prepare", "prepare_run"])
def test_e6_no_server_of_tools_but_those_that_it_was_given(way: str, tmp_path: Path) -> None:
    start = replace(start_of(tmp_path, "claude"), servers={"bullpen": "http://127.0.0.1:7/mcp"})
    prepared = getattr(CLAUDE, way)(start)
    assert "--strict-mcp-config" in prepared.argv
    assert flag(prepared.argv, "--mcp-config") == str(start.session / "mcp.json")
    servers = json.loads(prepared.files["mcp.json"])["mcpServers"]
    assert servers["bullpen"]["url"] == "http://127.0.0.1:7/mcp"
    # Longer than the five minutes after which a silent call would be cut.
    assert servers["bullpen"]["timeout"] == 24 * 3600 * 1000


def bare(start: Start) -> Start:
    """Nobody is logged in."""
    return replace(start, env={"PATH": start.env["PATH"]})


def write(path: Path, **content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


WAYS: dict[str, Callable[[Start], Start | None]] = {
    "a key in the environment": lambda s: replace(s, env={**s.env, "ANTHROPIC_API_KEY": "k"}),
    "a gateway": lambda s: replace(s, env={**s.env, "ANTHROPIC_BASE_URL": "http://x"}),
    "a token": lambda s: replace(s, env={**s.env, "CLAUDE_CODE_OAUTH_TOKEN": "t"}),
    "an own login": lambda s: write(s.person / ".claude/.credentials.json"),
    "a login of the home": lambda s: write(s.home / "claude-config/default/.credentials.json"),
    "a kept key": lambda s: write(s.person / ".claude.json", primaryApiKey="k"),
    "a helper": lambda s: write(s.person / ".claude/settings.json", apiKeyHelper="x"),
    "a variable in settings": lambda s: write(
        s.person / ".claude/settings.json", env={"ANTHROPIC_AUTH_TOKEN": "t"}
    ),
    "the role's helper": lambda s: replace(
        s, role=Role(name="worker", settings={"apiKeyHelper": "x"})
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_e2_claude_without_any_login_is_refused_at_its_start(way: str, tmp_path: Path) -> None:
    start = bare(start_of(tmp_path, "claude"))
    for prepare in (CLAUDE.prepare, CLAUDE.prepare_run, CLAUDE.check_login):
        with pytest.raises(BullpenError, match="nobody is logged in to Claude Code") as raised:
            prepare(start)
        assert raised.value.hint.startswith("bullpen auth claude")
    start = WAYS[way](start) or start
    assert CLAUDE.prepare(start).argv


def test_e2_a_repositorys_helper_counts_if_it_is_trusted(tmp_path: Path) -> None:
    start = bare(start_of(tmp_path, "claude"))
    write(Path(start.cwd) / ".claude/settings.json", apiKeyHelper="x")
    with pytest.raises(BullpenError, match="nobody is logged in"):
        CLAUDE.check_login(start)
    CLAUDE.check_login(replace(start, is_trusted=True))


def test_x4_questions_are_left_out_inside_walls_only(tmp_path: Path) -> None:
    start = start_of(tmp_path, "claude")
    assert flag(CLAUDE.prepare_run(start).argv, "--permission-mode") == "manual"
    inside = CLAUDE.prepare_run(replace(start, is_sandboxed=True))
    assert flag(inside.argv, "--permission-mode") == "bypassPermissions"
    assert inside.env["IS_SANDBOX"] == "1"
    assert "IS_SANDBOX" not in CLAUDE.prepare_run(start).env
    terminal = CLAUDE.prepare(replace(start, is_sandboxed=True))
    assert flag(terminal.argv, "--permission-mode") == "manual"


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, ()),
        ({"max_turns": 1}, ("--max-turns", "1")),
        ({"max_usd": 0.5}, ("--max-budget-usd", "0.500000")),
        ({"max_usd": 1e-6}, ("--max-budget-usd", "0.000001")),
    ],
)
def test_t1_limits_of_a_run_are_flags(
    given: dict[str, Any], flags: tuple[str, ...], tmp_path: Path
) -> None:
    argv = CLAUDE.prepare_run(replace(start_of(tmp_path, "claude"), **given)).argv
    found = [argv[n : n + 2] for n, word in enumerate(argv) if word.startswith("--max-")]
    assert found == ([flags] if flags else [])


def test_e4_a_run_asks_a_dead_api_a_few_times_only(tmp_path: Path) -> None:
    start = start_of(tmp_path, "claude")
    assert CLAUDE.prepare_run(start).env["CLAUDE_CODE_MAX_RETRIES"] == "3"
    assert "CLAUDE_CODE_MAX_RETRIES" not in CLAUDE.prepare(start).env


def test_o1_usage_goes_to_the_hub_with_the_agents_own_token(tmp_path: Path) -> None:
    env = CLAUDE.prepare(start_of(tmp_path, "claude")).env
    assert env["CLAUDE_CODE_ENABLE_TELEMETRY"] == "1"
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:7"
    assert env["OTEL_EXPORTER_OTLP_HEADERS"] == f"Authorization=Bearer {KEYS['BULLPEN_TOKEN']}"
    # Of amounts one that is lost would be lost for good.
    assert env["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"] == "cumulative"


# -- settings --------------------------------------------------------------------------------


def test_q1_rules_of_the_role_and_of_the_person_are_in_its_settings(tmp_path: Path) -> None:
    rules = {"allow": ("Read",), "deny": ("Bash(rm:*)",)}
    start = replace(start_of(tmp_path, "claude", permissions=rules), rules=("Bash(ls)",))
    made = json.loads(CLAUDE.prepare(start).files["settings.json"])
    assert made["permissions"] == {"allow": ["Read", "Bash(ls)"], "deny": ["Bash(rm:*)"]}


def test_q3_a_permission_is_waited_for_a_day_and_a_hook_is_not(tmp_path: Path) -> None:
    made = json.loads(CLAUDE.prepare(start_of(tmp_path, "claude")).files["settings.json"])
    assert {*TOLD, "SessionStart", "PermissionRequest"} == made["hooks"].keys()
    seconds = {event: each[-1]["hooks"][0]["timeout"] for event, each in made["hooks"].items()}
    assert seconds.pop("PermissionRequest") == 24 * 3600
    assert seconds.pop("UserPromptSubmit") == 30  # the first waits for the tools
    assert set(seconds.values()) == {5}


@pytest.mark.parametrize("missing", [*TOLD, "PermissionRequest"])
def test_settings_without_a_hook_of_ours_are_not_handed_over(missing: str) -> None:
    hooks = {event: [] for event in (*TOLD, "PermissionRequest") if event != missing}
    whole = json.dumps({"hooks": {**hooks, missing: []}})
    assert check(whole) == whole
    with pytest.raises(BullpenError, match="without its rules"):
        check(json.dumps({"hooks": hooks}))


# -- `.claude.json` --------------------------------------------------------------------------


def test_e2_a_key_that_was_once_rejected_is_approved_and_the_rest_stays() -> None:
    key = "sk-ant-" + "x" * 30
    before = {
        "projects": {"/other": {"allowedTools": ["a"]}, "/work": {"history": [1]}},
        "customApiKeyResponses": {"approved": ["other"], "rejected": [key[-20:], "third"]},
        "theme": "dark",
    }
    after = config.ready(before, "/work", key)
    assert after["customApiKeyResponses"] == {
        "approved": ["other", key[-20:]],
        "rejected": ["third"],
    }
    assert after["projects"] == {
        "/other": {"allowedTools": ["a"]},
        "/work": {"history": [1], "hasTrustDialogAccepted": True, "acceptedByBullpen": True},
    }
    assert after["theme"] == "dark"
    assert after["hasCompletedOnboarding"] is True
    assert config.ready(after, "/work", key) == after
    assert "customApiKeyResponses" not in config.ready({}, "/work", "")


def test_f4_what_is_written_is_the_persons_alone_to_read(tmp_path: Path) -> None:
    start = start_of(tmp_path, "claude")
    CLAUDE.make_ready(start, CLAUDE.prepare(start))
    file = start.person / ".claude.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((start.person / ".claude/sessions").stat().st_mode) == 0o700
    assert not file.with_name(".claude.json.lock").exists()


def test_e2_the_lock_is_free_again_after_a_failure(tmp_path: Path) -> None:
    start = start_of(tmp_path, "claude")
    file = start.person / ".claude.json"
    file.write_text("{")
    with pytest.raises(BullpenError, match="is not JSON") as raised:
        CLAUDE.make_ready(start, CLAUDE.prepare(start))
    assert raised.value.kind is Kind.CONFLICT
    assert file.read_text() == "{"
    assert not file.with_name(".claude.json.lock").exists()


def test_e2_what_is_ready_is_not_written_again(tmp_path: Path) -> None:
    start = start_of(tmp_path, "claude")
    CLAUDE.make_ready(start, CLAUDE.prepare(start))
    file = start.person / ".claude.json"
    before = file.stat().st_ino  # a write would be a rename
    CLAUDE.make_ready(start, CLAUDE.prepare(start))
    assert file.stat().st_ino == before


def test_e2_which_directory_is_used(tmp_path: Path) -> None:
    session, home, person = tmp_path / "session", tmp_path / "home", tmp_path / "person"

    def chosen(wanted: str | None, **env: str) -> Path:
        return config.choose_config(wanted, session, home, env, person).root

    assert chosen(None) == person / ".claude"
    assert chosen(None, CLAUDE_CONFIG_DIR="/x") == Path("/x")
    (home / config.SHARED).mkdir(parents=True)
    assert chosen(None, CLAUDE_CONFIG_DIR="/x") == Path("/x"), "nobody logged in there"
    (home / config.SHARED / config.CREDENTIALS).touch()
    assert chosen(None, CLAUDE_CONFIG_DIR="/x") == home / config.SHARED
    assert chosen("session") == session / config.OWN
    assert chosen("~/mine") == person / "mine"
    assert chosen("ours") == home / "ours"


@pytest.mark.parametrize(
    ("lines", "resumes"),
    [
        ([], False),
        ([{"type": "summary", "text": "user"}], False),
        ([{"type": "file-history-snapshot", "of": "user"}, {"type": "user"}], True),
        (["user", {"type": "user"}], True),
    ],
)
def test_e6_only_a_conversation_with_a_prompt_in_it_is_resumed(
    lines: list[object], resumes: bool, tmp_path: Path
) -> None:
    start = replace(start_of(tmp_path, "claude"), conversation=CONVERSATION)
    file = start.person / f".claude/projects/-work/{CONVERSATION}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type":"us')
    assert CLAUDE.has_conversation(start) == resumes
    going_on, new = CLAUDE.prepare(start), CLAUDE.prepare(replace(start, conversation=""))
    assert flag(going_on.argv, "--resume") == going_on.conversation == CONVERSATION
    assert flag(new.argv, "--session-id") == new.conversation != CONVERSATION


# -- what it says of itself ------------------------------------------------------------------


def test_s1_a_compaction_in_the_middle_of_a_turn_is_no_end_of_it() -> None:
    def state(event: str, **more: str) -> object:
        told = CLAUDE.observe({"hook_event_name": event, **more}, 1.0)
        return told and told.state

    assert state("SessionStart", source="compact") is None
    assert state("SessionStart", source="startup") == Idle()
    assert state("PreToolUse", tool_name="Bash") == Working(tool="Bash")
    asked = Blocked(on="question", tool="AskUserQuestion")
    assert state("PreToolUse", tool_name="AskUserQuestion") == asked
    assert state("PermissionRequest") is None, "who waits for the answer says so"
    assert state("SessionEnd") is None


@pytest.mark.parametrize(
    ("since", "is_believed"),
    [(0, True), (2**32 * 1000 - 1, True), (-1, False), (2**32 * 1000, False), ("1", False)],
)
def test_s1_a_state_file_is_believed_within_the_calendar(since: object, is_believed: bool) -> None:
    fields = {"sessionId": CONVERSATION, "pid": 7, "status": "idle", "statusUpdatedAt": since}
    found = CLAUDE.read_state_file(json.dumps(fields).encode())
    assert found is not None
    assert (found.conversation, found.pid) == (CONVERSATION, 7)
    assert (found.told is not None) == is_believed


@pytest.mark.parametrize(
    ("waiting_for", "on"), [("permission", "permission"), ("input", "question"), (None, "question")]
)
def test_s3_what_it_waits_for_is_in_its_state_file(waiting_for: str | None, on: str) -> None:
    fields = {"sessionId": CONVERSATION, "pid": 7, "status": "waiting", "statusUpdatedAt": 1}
    found = CLAUDE.read_state_file(json.dumps({**fields, "waitingFor": waiting_for}).encode())
    assert found and found.told
    assert isinstance(found.told.state, Blocked)
    assert found.told.state.on == on


# -- receipts --------------------------------------------------------------------------------

ID, OTHER = "m-0123456789ab", "m-ba9876543210"
HEAD = f"[message from root · {ID}]\nabout {OTHER}"


@pytest.mark.parametrize(
    ("kind", "is_proof"),
    [
        ("user", True),
        ("attachment", True),
        ("queue-operation", False),
        ("api-request", False),
        ("api-request-blob", False),
        ("api-request-shape", False),
    ],
)
def test_g2_that_a_message_was_queued_proves_no_receipt(
    kind: str, is_proof: bool, tmp_path: Path
) -> None:
    file = tmp_path / "projects/-work/x.jsonl"
    file.parent.mkdir(parents=True)
    line = json.dumps({"type": kind, "text": HEAD}, ensure_ascii=False)
    file.write_text(f"no JSON {HEAD}\n{line}\n")
    agent = agent_of(tmp_path / "sessions")
    assert CLAUDE.find_shown(agent, {ID, OTHER}, 0.0) == ({ID} if is_proof else set())


def test_g2_a_transcript_that_is_a_little_older_than_the_message_is_looked_at(
    tmp_path: Path,
) -> None:
    file = tmp_path / "projects/-work/x.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"type": "user", "text": HEAD}, ensure_ascii=False))
    os.utime(file, (1000, 1000))
    agent = agent_of(tmp_path / "sessions")
    assert CLAUDE.find_shown(agent, {ID}, 1004) == {ID}
    assert CLAUDE.find_shown(agent, {ID}, 1006) == set()


# -- how a run ends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "is_retryable"),
    [
        ({"api_error_status": 500}, True),
        ({"api_error_status": 529}, True),
        ({"api_error_status": 408}, True),
        ({"api_error_status": 499}, False),
        ({"api_error_status": 400}, False),
        ({"api_error_status": None, "result": "fetch failed"}, True),
        ({"api_error_status": None, "result": "Invalid API key · Please run /login"}, False),
        ({"api_error_status": 500, "terminal_reason": "max_turns"}, False),
    ],
)
def test_t9_which_failures_pass_by_themselves(fields: dict[str, Any], is_retryable: bool) -> None:
    line = {"type": "result", "is_error": True, "terminal_reason": "api_error", **fields}
    (ended,) = CLAUDE.read_line(json.dumps(line).encode())
    assert isinstance(ended, RunOutcome)
    assert (ended.fault, ended.is_retryable) == ("engine_error", is_retryable)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"terminal_reason": "aborted_streaming"}, "cancelled"),
        ({"terminal_reason": "aborted_tools", "is_error": False}, "cancelled"),
        ({"terminal_reason": "api_error", "api_error_status": 429}, "rate_limit"),
    ],
)
def test_e4_what_kind_of_failure_it_was(fields: dict[str, Any], fault: str) -> None:
    (ended,) = CLAUDE.read_line(json.dumps({"type": "result", "is_error": True, **fields}).encode())
    assert isinstance(ended, RunOutcome)
    assert (ended.fault, ended.is_retryable) == (fault, False)


def test_o3_the_minute_that_is_just_running_is_meant() -> None:
    noon = 12 * 3600.0
    assert limits.find_reset("resets 12pm (UTC)", noon + 30) == noon + 60
    assert limits.find_reset("resets 12pm (UTC)", noon + 61) == noon + 60 + 86400


@pytest.mark.parametrize(
    ("kind", "shown", "why"),
    [
        ("authentication_failed", "Not logged in · Please run /login", "not logged in"),
        ("authentication_failed", "Please run /login · API Error: 401 x", "login refused, API 401"),
        ("server_error", "API Error: 500 x. This is a server-side issue", "API 500"),
        ("billing_error", "Credit balance is too low", "billing error"),
        ("unknown", "fetch failed", "API error"),
        ("\x1b[31m", "", "API error"),
        (["odd"], {"odd": 1}, "API error"),
        ("rate_limit", "API Error: 429", ""),
    ],
)
def test_s3_why_a_turn_failed_in_a_few_words(kind: object, shown: object, why: str) -> None:
    hook = {"hook_event_name": "StopFailure", "error": kind, "last_assistant_message": shown}
    assert find_failure(hook) == why

"""Directories of the agent's own, and the files of Gemini CLI and Codex in them. Nothing is
started."""

import json
import os
import stat
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import Start, get_engine
from bullpen.engines.codex.config import _trusted_hash
from bullpen.engines.codex.login import login as codex_login
from bullpen.engines.codex.toml import to_toml
from bullpen.engines.gemini.login import login as gemini_login
from bullpen.engines.own_home import copy, find_origin, link, note_origin, real_directory, write_own
from bullpen.errors import BullpenError, Kind
from bullpen.model.state import Blocked
from tests.engines.starts import agent_of, sandboxed, start_of

GEMINI, CODEX = get_engine("gemini"), get_engine("codex")
ID = "m-0123456789ab"
HEAD = f"[message from root · {ID}]\ntext"


def made_ready(start: Start) -> Path:
    """The agent's own directory."""
    assert start.role is not None
    engine = get_engine(start.role.agent_type)
    prepared = engine.prepare(start)
    engine.make_ready(start, prepared)
    variable = "CODEX_HOME" if engine is CODEX else "GEMINI_CLI_HOME"
    return Path(prepared.env[variable])


# -- taking over -----------------------------------------------------------------------------


def test_e7_a_login_that_is_gone_leaves_no_link(tmp_path: Path) -> None:
    own, origin = tmp_path / "own", tmp_path / "origin"
    origin.mkdir()
    (origin / "auth.json").write_text("{}")
    link(own, origin, ["auth.json", "prompts"])
    assert (own / "auth.json").readlink() == origin / "auth.json"
    (origin / "auth.json").unlink()
    link(own, origin, ["auth.json", "prompts"])
    assert list(own.iterdir()) == []


def test_e7_what_the_program_wrote_in_place_of_a_link_is_replaced(tmp_path: Path) -> None:
    own, origin = tmp_path / "own", tmp_path / "origin"
    for directory in (own / "kept", origin / "kept"):
        directory.mkdir(parents=True)
    (origin / "auth.json").write_text("new")
    (own / "auth.json").write_text("old")
    link(own, origin, ["auth.json", "kept"])
    assert (own / "auth.json").read_text() == "new"
    assert not (own / "kept").is_symlink()


def test_x5_a_copy_waits_for_no_pipe_and_holds_no_link(tmp_path: Path) -> None:
    own, origin = tmp_path / "own", tmp_path / "origin"
    (origin / "commands").mkdir(parents=True)
    (origin / "commands/one").write_text("1")
    os.mkfifo(origin / "commands/pipe")
    (origin / "commands/nowhere").symlink_to(tmp_path / "nowhere")
    (own / "commands").mkdir(parents=True)
    (own / "commands/planted").write_text("by the agent")
    copy(own, origin, ["commands"])
    assert [path.name for path in (own / "commands").iterdir()] == ["one"]


def test_x5_what_is_gone_from_the_persons_is_gone_from_the_copy(tmp_path: Path) -> None:
    own, origin = tmp_path / "own", tmp_path / "origin"
    own.mkdir()
    origin.mkdir()
    (own / "AGENTS.md").write_text("by the agent")
    copy(own, origin, ["AGENTS.md"])
    assert list(own.iterdir()) == []


def test_f4_what_is_written_is_the_persons_alone_to_read(tmp_path: Path) -> None:
    write_own(tmp_path / "config.toml", "a = 1\n")
    assert stat.S_IMODE((tmp_path / "config.toml").stat().st_mode) == 0o600
    (tmp_path / "planted").mkdir()
    write_own(tmp_path / "planted", "text")
    assert (tmp_path / "planted").read_text() == "text"


def test_x5_whatever_is_in_place_of_a_directory_makes_way(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "own").symlink_to(target)
    assert not real_directory(tmp_path / "own").is_symlink()
    assert target.is_dir()
    (tmp_path / "file").write_text("")
    assert real_directory(tmp_path / "file").is_dir()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o700


def test_e7_a_restart_finds_what_an_agents_directory_was_made_from(tmp_path: Path) -> None:
    own, origin = tmp_path / "session/codex", tmp_path / "person/.codex"
    note_origin(own, origin)
    assert find_origin(str(own), tmp_path) == origin
    assert find_origin("", origin) == origin
    assert find_origin("/of/the/person", origin) == Path("/of/the/person")
    note_origin(own, tmp_path / "moved")
    assert find_origin(str(own), tmp_path) == tmp_path / "moved"
    assert list(own.iterdir()) == [], "the agent could change it there"


# -- Gemini CLI ------------------------------------------------------------------------------

LOGINS = (
    *("oauth_creds.json", "google_accounts.json", "gemini-credentials.json"),
    *("mcp-oauth-tokens.json", ".env"),
)


@pytest.mark.parametrize("name", LOGINS)
def test_f4_no_credential_of_gemini_gets_into_a_sandbox(name: str, tmp_path: Path) -> None:
    start = start_of(tmp_path, "gemini")
    person = start.person / ".gemini"
    person.mkdir()
    (person / name).write_text("secret")
    (person / "installation_id").write_text("it")
    inside = made_ready(sandboxed(start)) / ".gemini"
    assert (inside / "installation_id").read_text() == "it"
    assert not os.path.lexists(inside / name)
    assert (made_ready(start) / ".gemini" / name).readlink() == person / name


@pytest.mark.parametrize(
    "name", ["settings.json", ".env", "agents", "commands", "extensions", "skills"]
)
def test_e7_gemini_is_not_started_beside_what_nobody_trusted(name: str, tmp_path: Path) -> None:
    start = start_of(tmp_path, "gemini")
    planted = Path(start.cwd, ".gemini", name)
    planted.parent.mkdir()
    made_ready(start)  # nothing in it yet
    planted.write_text("")
    with pytest.raises(BullpenError, match="is not trusted, and Gemini") as raised:
        made_ready(start)
    assert raised.value.kind is Kind.DENIED
    assert str(planted) in raised.value.message
    made_ready(replace(start, is_trusted=True))
    made_ready(replace(start, person=Path(start.cwd)))  # the person's own


@pytest.mark.parametrize(
    ("hook", "blocked"),
    [
        ({"notification_type": "ToolPermission", "details": {"type": "exec"}}, "run_shell_command"),
        ({"notification_type": "ToolPermission", "details": {"type": "edit"}}, "replace"),
        ({"notification_type": "ToolPermission", "details": {"toolName": "own"}}, "own"),
        ({"notification_type": "Idle", "details": {"type": "exec"}}, None),
        ({}, None),
    ],
)
def test_s1_gemini_is_blocked_by_a_permission_only(
    hook: dict[str, Any], blocked: str | None
) -> None:
    told = GEMINI.observe({"hook_event_name": "Notification", **hook}, 1.0)
    expected = Blocked(on="permission", tool=blocked) if blocked else None
    assert (told and told.state) == expected


def test_s3_gemini_asks_a_question() -> None:
    details = {"notification_type": "ToolPermission", "details": {"type": "ask_user"}}
    told = GEMINI.observe({"hook_event_name": "Notification", **details}, 1.0)
    assert told and told.state == Blocked(on="question")


@pytest.mark.parametrize(("size", "pauses"), [(10, 0), (40 << 10, 1), (100 << 10, 3)])
def test_g1_gemini_has_time_to_read_a_long_paste_before_enter(size: int, pauses: int) -> None:
    clearing, paste, *between, enter = GEMINI.typed("x" * size)
    assert set(clearing) == set(b"\x15\x7f")
    assert len(paste) > size
    assert between == [b""] * pauses
    assert enter == b"\r"


def test_e7_gemini_has_the_settings_of_the_role_before_those_of_the_person(tmp_path: Path) -> None:
    hook = {"matcher": "x", "command": "check it", "timeout": 1.5}
    settings = {"mcpServers": {"of_the_role": {}}, "ui": {"theme": "role"}}
    start = start_of(tmp_path, "gemini", hooks={"BeforeTool": [hook]}, settings=settings)
    person = start.person / ".gemini/settings.json"
    person.parent.mkdir()
    theirs = {"mcpServers": {"of_the_person": {}}, "ui": {"theme": "person", "hideBanner": True}}
    person.write_text("// mine\n" + json.dumps(theirs))
    made = json.loads((made_ready(start) / ".gemini/settings.json").read_text())
    assert made["ui"] == {"theme": "role", "hideBanner": True}
    assert made["mcpServers"].keys() == {"of_the_role", "of_the_person"}
    first, ours = made["hooks"]["BeforeTool"]
    assert first["matcher"] == "x"
    assert first["hooks"][0]["timeout"] == 1500  # milliseconds
    assert ours["hooks"][0]["timeout"] == 5000
    assert made["general"]["maxAttempts"] == 3
    assert made["telemetry"]["logPrompts"] is False
    assert made["security"]["folderTrust"] == {"enabled": True}


@pytest.mark.parametrize(
    ("env", "way"),
    [
        ({"GEMINI_API_KEY": "k", "GOOGLE_GENAI_USE_VERTEXAI": "true"}, "gemini-api-key"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "k"}, "vertex-ai"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, None),
        ({"GOOGLE_API_KEY": "k"}, None),
        ({}, None),
    ],
)
def test_f4_gemini_in_a_sandbox_signs_in_by_the_environment(
    env: dict[str, str], way: str | None, tmp_path: Path
) -> None:
    start = replace(sandboxed(start_of(tmp_path, "gemini")), env=env)
    (start.person / ".gemini").mkdir()
    (start.person / ".gemini/oauth_creds.json").write_text("{}")
    if way:
        assert gemini_login(start, start.person) == way
        return
    with pytest.raises(BullpenError, match="no key is set"):
        gemini_login(start, start.person)


# -- Codex -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hooks.json", "rules/open.rules"])
def test_x5_codex_reads_nothing_that_its_last_run_planted(name: str, tmp_path: Path) -> None:
    start = sandboxed(start_of(tmp_path, "codex"))
    own = made_ready(start)
    (own / name).write_text("planted")
    made_ready(start)
    assert not (own / name).exists()
    assert (own / "rules/bullpen.rules").exists()


def test_f4_no_login_of_codex_gets_into_a_sandbox(tmp_path: Path) -> None:
    start = start_of(tmp_path, "codex")
    (start.person / ".codex").mkdir()
    (start.person / ".codex/auth.json").write_text("secret")
    (start.person / ".codex/AGENTS.md").write_text("text")
    inside = made_ready(sandboxed(start))
    assert (inside / "AGENTS.md").read_text() == "text"
    assert not os.path.lexists(inside / "auth.json")
    no_key = replace(start, env={})
    assert codex_login(no_key, start.person / ".codex", {}) == {}
    with pytest.raises(BullpenError, match="cannot use your own login"):
        codex_login(sandboxed(no_key), start.person / ".codex", {})


def test_e7_codex_is_not_started_in_a_terminal_where_it_would_stop_at_a_dialog(
    tmp_path: Path,
) -> None:
    start = replace(start_of(tmp_path, "codex"), run=Path())
    made_ready(start)
    Path(start.cwd, ".codex").mkdir()
    Path(start.cwd, ".codex/hooks.json").write_text("{}")
    with pytest.raises(BullpenError, match=r"brings .codex, which is not trusted") as raised:
        made_ready(start)
    assert raised.value.kind is Kind.DENIED
    made_ready(replace(start, is_trusted=True))
    made_ready(replace(start, env={**start.env, "CODEX_HOME": f"{start.cwd}/.codex"}))  # their own


def codex_files(start: Start) -> tuple[dict[str, Any], str]:
    """What Codex is told to trust, and the texts it is given."""
    own = made_ready(start)
    config = tomllib.loads((own / "config.toml").read_text())
    return config["projects"], (own / "AGENTS.md").read_text()


@pytest.mark.parametrize("below", [".", "a", "a/b"])
def test_e7_codex_leaves_out_what_nobody_trusted_and_gets_the_texts(
    below: str, tmp_path: Path
) -> None:
    start = start_of(tmp_path, "codex")
    root = Path(start.cwd)
    (root / ".git").mkdir()
    (root / "AGENTS.md").write_text("of the repository")
    (root / below).mkdir(parents=True, exist_ok=True)
    start = replace(start, cwd=str(root / below))
    trusted = {start.cwd: {"trust_level": "trusted"}}
    (root / ".codex").mkdir()
    assert codex_files(start) == (trusted, "")  # an empty one says nothing
    (root / ".codex/config.toml").write_text("")
    projects, texts = codex_files(start)
    assert projects == {path: {"trust_level": "untrusted"} for path in (str(root), start.cwd)}
    assert texts == "of the repository"
    assert codex_files(replace(start, is_trusted=True)) == (trusted, "")
    (root / ".codex/config.toml").unlink()
    (root.parent / ".codex").mkdir()
    (root.parent / ".codex/config.toml").write_text("")
    assert codex_files(start) == (trusted, "")  # above the repository it does not look


def test_e7_what_is_no_directory_may_say_something_to_codex(tmp_path: Path) -> None:
    start = start_of(tmp_path, "codex")
    Path(start.cwd, ".codex").write_text("")
    assert codex_files(start)[0] == {start.cwd: {"trust_level": "untrusted"}}


def test_e7_codex_trusts_its_own_directory_and_no_other_of_the_persons(tmp_path: Path) -> None:
    start = start_of(tmp_path, "codex", settings={"model_provider": "own"})
    file = start.person / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text('a = 1\n[projects."/other"]\ntrust_level = "trusted"\n[hooks]\nx = 1\n')
    made = tomllib.loads((made_ready(start) / "config.toml").read_text())
    assert made["projects"] == {start.cwd: {"trust_level": "trusted"}}
    assert "x" not in made["hooks"]
    assert made["a"] == 1


def test_x4_codex_builds_no_walls_inside_walls_and_asks_outside(tmp_path: Path) -> None:
    start = start_of(tmp_path, "codex")
    outside = tomllib.loads((made_ready(start) / "config.toml").read_text())
    assert outside["approval_policy"] == "on-request"
    assert "sandbox_mode" not in outside
    inside = tomllib.loads((made_ready(sandboxed(start)) / "config.toml").read_text())
    assert inside["approval_policy"] == "never"
    assert inside["sandbox_mode"] == "danger-full-access"


def test_e7_the_hash_of_a_hook_is_of_what_codex_looks_at() -> None:
    action = {"command": "x", "timeout": 5}
    with_matcher = _trusted_hash("PreToolUse", "Bash", action)
    assert with_matcher != _trusted_hash("PreToolUse", None, action)
    for event in ("UserPromptSubmit", "Stop", "Interrupt", "SessionEnd"):
        assert _trusted_hash(event, "Bash", action) == _trusted_hash(event, None, action)
    assert _trusted_hash("Stop", None, {"command": "x"}) == _trusted_hash(
        "Stop", None, {"command": "x", "timeout": 600}
    )
    assert with_matcher != _trusted_hash("PreToolUse", "Bash", {**action, "async": True})


def test_any_text_survives_in_toml() -> None:
    text = "".join(map(chr, range(0x300))) + "\\\"'\u2028"
    config = {"key": text, text: {text: [text, {"in": text}], "none": None}, "gone": None}
    assert tomllib.loads(to_toml(config)) == {"key": text, text: {text: [text, {"in": text}]}}


# -- receipts --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["codex", "gemini"])
def test_g2_a_transcript_that_is_a_little_older_than_the_message_is_looked_at(
    name: str, tmp_path: Path
) -> None:
    if name == "codex":
        file = tmp_path / "2026/11/16/rollout-x.jsonl"
        payload = {"type": "message", "role": "user", "content": [{"text": HEAD}]}
        line: dict[str, Any] = {"type": "response_item", "payload": payload}
    else:
        file = tmp_path / "work/chats/session-x.jsonl"
        line = {"type": "user", "content": [{"text": HEAD}]}
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(line, ensure_ascii=False))
    os.utime(file, (1000, 1000))
    engine, agent = get_engine(name), agent_of(tmp_path)
    assert engine.find_shown(agent, {ID}, 1004) == {ID}
    assert engine.find_shown(agent, {ID}, 1006) == set()

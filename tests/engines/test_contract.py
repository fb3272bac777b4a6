"""What holds for every engine, whatever program it knows. Nothing is started here."""

import json
import re
import shlex
import tomllib
import unicodedata
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.cli.doctor import engines as doctor
from bullpen.engines import ENGINES, Engine, Prepared, Start
from bullpen.engines.base import Reader
from bullpen.engines.lines import (
    ModelText,
    RunOutcome,
    TokensSpent,
    ToolUsed,
    TurnBegun,
    outcome_of_exit,
)
from bullpen.engines.versions import PROGRAMS
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.hub.agents.program import resolve_conversation
from bullpen.model import role as role_model
from bullpen.model.role import Role
from bullpen.model.state import Idle

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).with_name("samples")
TOKEN = "bullpen-token-of-the-agent"
KEYS = {
    "BULLPEN_TOKEN": TOKEN,
    "ANTHROPIC_API_KEY": "sk-ant-" + "1" * 30,
    "GEMINI_API_KEY": "gemini-" + "2" * 30,
    "CODEX_API_KEY": "sk-codex-" + "3" * 30,
}
HOOK = ("/usr/bin/python3", "-c", "hand over 'it'", "amy")
ASK = ("/usr/bin/python3", "-c", "ask for it", "amy")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Those that talk to a model.
TALKING = sorted(name for name in ENGINES if name != "command")

every = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
talking = pytest.mark.parametrize("engine", [ENGINES[name] for name in TALKING], ids=TALKING)
way = pytest.mark.parametrize("way", ["prepare", "prepare_run"])


@pytest.fixture
def given_start(tmp_path: Path) -> Start:
    """A start for which everything is there; `for_engine` gives it a role."""
    programs = tmp_path / "bin"
    for directory in (programs, tmp_path / "session", tmp_path / "session/run", tmp_path / "work"):
        directory.mkdir()
    for name in TALKING:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    return Start(
        role=None,
        words=(),
        agent="amy",
        cwd=str(tmp_path / "work"),
        session=tmp_path / "session",
        run=tmp_path / "session/run",
        home=tmp_path / "home",
        person=tmp_path / "person",
        env={"PATH": str(programs), **KEYS},
        url="http://127.0.0.1:7",
        hook=HOOK,
        ask=ASK,
    )


def for_engine(start: Start, engine: Engine, prompt: str = "", **fields: Any) -> Start:
    if engine.name == "command":
        fields = {"command": ("/bin/cat",), "deliver": "lines", **fields}
    role = Role(name="worker", agent_type=engine.name, **fields)
    return replace(start, role=role, prompt=prompt, env={**start.env, **role.env})


def merged_env(start: Start, prepared: Prepared) -> dict[str, str]:
    """As the hub does it."""
    assert start.role is not None
    return {**start.env, **prepared.env, **start.role.env}


@talking
def test_an_engine_is_in_every_table_that_the_recipe_names(engine: Engine) -> None:
    """CONTRIBUTING, "A new engine"."""
    for table in (PROGRAMS, credentials.LOGINS, doctor.LOG_IN):
        assert engine.name in table


# -- starts ----------------------------------------------------------------------------------


def test_e1_the_table_knows_each_engine_by_its_name() -> None:
    assert {name: engine.name for name, engine in ENGINES.items()} == {
        name: name for name in ("claude", "gemini", "codex", "command")
    }
    assert set(ENGINES) == set(get_args(role_model.Engine)) == set(role_model.PERMISSION_MODES)
    for engine in ENGINES.values():
        assert isinstance(engine.missing, str)
        assert all(isinstance(text, str) and text for text in engine.lacks)


@every
def test_a_program_that_is_held_as_it_is_is_left_as_it_is(
    engine: Engine, given_start: Start
) -> None:
    start = replace(given_start, words=("/opt/it", "--flag", "word"))
    prepared = engine.prepare(start)
    assert prepared.argv == start.words
    assert (prepared.env, prepared.files, prepared.first_input) == ({}, {}, b"")
    engine.make_ready(start, prepared)
    assert list(start.session.iterdir()) == [start.run]
    assert list(start.run.iterdir()) == []


@talking
@way
def test_a_start_names_a_program_and_files_of_the_session(
    engine: Engine, given_start: Start, way: str
) -> None:
    fields = {"instructions": "Think.", "system_prompt": "You are.", "model": "some-model"}
    start = for_engine(given_start, engine, "do it", **fields)
    prepared = getattr(engine, way)(start)
    assert prepared.argv
    assert Path(prepared.argv[0]).is_absolute()
    assert str(Path(given_start.env["PATH"]) / engine.name) in prepared.argv
    assert prepared.files
    for name, text in prepared.files.items():
        assert Path(name).name == name, "beside the session's other files, not elsewhere"
        text.encode()
        if name.endswith(".json"):
            assert isinstance(json.loads(text), dict)
        if name.endswith(".toml"):
            tomllib.loads(text)
    whole = json.dumps([prepared.argv, dict(prepared.files), dict(prepared.env)])
    for word in fields.values():
        assert word in whole
    assert "some-model" in json.dumps([prepared.argv, dict(prepared.files)])


@talking
@way
def test_b6_what_it_is_told_is_in_no_command_line(
    engine: Engine, given_start: Start, way: str
) -> None:
    """Every user of the machine reads command lines."""
    texts = {"instructions": "Always heron.", "system_prompt": "You are a wader."}
    start = for_engine(given_start, engine, "the first prompt", **texts)
    argv = " ".join(getattr(engine, way)(start).argv)
    assert [text for text in (*texts.values(), "the first prompt") if text in argv] == []


@talking
@way
def test_no_credential_is_in_a_command_line_or_a_file(
    engine: Engine, given_start: Start, way: str
) -> None:
    start = for_engine(given_start, engine, "do it")
    prepared = getattr(engine, way)(start)
    engine.make_ready(start, _written(start, prepared))
    shown = json.dumps([prepared.argv, dict(prepared.files), dict(prepared.run_files)])
    assert [value for value in KEYS.values() if value in shown] == []
    assert prepared.first_input.find(TOKEN.encode()) == -1


@talking
def test_t1_what_a_run_is_given_is_in_its_own_directory(engine: Engine, given_start: Start) -> None:
    """Two runs of one agent share all other files, and these are the same for both."""
    one = for_engine(given_start, engine, "the first [[prompt]]")
    two = replace(one, prompt="another", run=given_start.session / "other")
    first, second = engine.prepare_run(one), engine.prepare_run(two)
    assert first.files == second.files
    assert "the first [[prompt]]" not in json.dumps([dict(first.files), first.argv])
    assert first.first_input == b""
    [(name, text)] = first.run_files.items()
    assert "the first [[prompt]]" in text
    assert str(one.run / name) in first.argv
    assert str(two.run / name) in second.argv
    with pytest.raises(BullpenError, match="directory of its own"):
        engine.prepare_run(replace(one, run=Path()))


@talking
def test_a_prompt_that_is_half_a_character_can_be_written(
    engine: Engine, given_start: Start
) -> None:
    prepared = engine.prepare_run(for_engine(given_start, engine, "a \ud800 b"))
    for text in prepared.run_files.values():
        text.encode()


@talking
def test_both_hooks_of_ours_and_those_of_the_role_are_in_its_files(
    engine: Engine, given_start: Start
) -> None:
    event = {"gemini": "BeforeTool"}.get(engine.name, "PreToolUse")
    hooks = {event: [{"matcher": "x", "command": "the role's own"}]}
    prepared = engine.prepare(for_engine(given_start, engine, hooks=hooks))
    found = [*_commands(prepared)]
    assert shlex.join(HOOK) in found
    assert "the role's own" in found
    if engine.name != "gemini":  # it can only be told that somebody is asked
        assert shlex.join(ASK) in found


@talking
@way
def test_a_variable_of_the_role_wins_or_is_refused(
    engine: Engine, given_start: Start, way: str
) -> None:
    ours = getattr(engine, way)(for_engine(given_start, engine, "x")).env
    assert ours, "an engine that sets none has nothing to prove here"
    for name in [*ours, "WORD"]:
        start = for_engine(given_start, engine, "x", env={name: "of the role"})
        try:
            prepared = getattr(engine, way)(start)
        except BullpenError as error:
            assert name in error.message
            assert error.kind is Kind.UNSUPPORTED
        else:
            assert merged_env(start, prepared)[name] == "of the role"


@talking
@way
@pytest.mark.parametrize("prompt", ["--help", "-p x", "-", "--", "--prompt=x"])
def test_a_prompt_with_a_dash_is_not_an_option(
    engine: Engine, given_start: Start, way: str, prompt: str
) -> None:
    prepared = getattr(engine, way)(for_engine(given_start, engine, prompt))
    plain = getattr(engine, way)(for_engine(given_start, engine, "a plain prompt"))
    argv = list(_without_ids(prepared.argv))
    assert len(argv) == len(plain.argv)
    differing = [
        (index, word)
        for index, (word, other) in enumerate(zip(argv, _without_ids(plain.argv), strict=True))
        if word != other
    ]
    for index, word in differing:
        flag = word.removesuffix(prompt)
        assert "--" in argv[:index] or re.fullmatch(r"--[a-z-]+=", flag), argv
    given = [*prepared.files.values(), *prepared.run_files.values()]
    assert differing or any(prompt in text for text in given)


@talking
@way
def test_words_that_the_person_added_are_passed_on_in_order(
    engine: Engine, given_start: Start, way: str
) -> None:
    start = replace(for_engine(given_start, engine, "do it"), words=("--one", "two"))
    argv = list(getattr(engine, way)(start).argv)
    place = argv.index("--one")
    assert argv[place + 1] == "two"
    assert "--" not in argv[:place]


@talking
@way
def test_a_conversation_that_left_nothing_is_not_resumed(
    engine: Engine, given_start: Start, way: str
) -> None:
    gone = "01a1e29b-4f8e-7c21-82ad-fdfff48671aa"
    start = resolve_conversation(engine, for_engine(given_start, engine, "x"), gone)
    prepared = getattr(engine, way)(start)
    assert prepared.conversation != gone
    assert gone not in prepared.argv


@talking
@way
def test_the_same_start_is_prepared_the_same(engine: Engine, given_start: Start, way: str) -> None:
    start = for_engine(given_start, engine, "do it")
    one, two = getattr(engine, way)(start), getattr(engine, way)(start)
    assert _without_ids(one.argv) == _without_ids(two.argv)
    assert (one.env, one.files) == (two.env, two.files)
    assert one.run_files == two.run_files


@talking
def test_making_ready_twice_writes_the_same_and_nothing_of_the_persons_login(
    engine: Engine, given_start: Start
) -> None:
    person = given_start.person
    login = {".codex/auth.json": "{}", ".gemini/oauth_creds.json": "{}"}
    for name, text in login.items():
        (person / name).parent.mkdir(parents=True)
        (person / name).write_text(text)
    start = for_engine(given_start, engine, "do it")
    engine.make_ready(start, _written(start, engine.prepare(start)))
    first = _tree(start.session)
    again = replace(start, env={**start.env, **engine.prepare(start).env})
    engine.make_ready(again, _written(again, engine.prepare(again)))
    assert _tree(start.session) == first
    assert {name: (person / name).read_text() for name in login} == login
    assert not any((person / name).is_symlink() for name in login)


@pytest.mark.parametrize(
    ("name", "planted"),
    [("codex", "codex"), ("codex", "codex/rules"), ("gemini", "gemini/.gemini/policies")],
)
def test_a_link_that_an_agent_put_in_place_of_a_directory_is_not_followed(
    name: str, planted: str, given_start: Start, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (given_start.session / planted).parent.mkdir(parents=True, exist_ok=True)
    (given_start.session / planted).symlink_to(elsewhere)
    start = for_engine(given_start, ENGINES[name], "do it")
    with pytest.raises(BullpenError, match="is a link"):
        ENGINES[name].make_ready(start, ENGINES[name].prepare(start))
    assert list(elsewhere.iterdir()) == []


@talking
def test_a_missing_program_is_said_with_the_way_to_get_it(
    engine: Engine, given_start: Start, tmp_path: Path
) -> None:
    start = replace(given_start, env={**given_start.env, "PATH": str(tmp_path / "nowhere")})
    with pytest.raises(BullpenError, match=f"{engine.name} is not installed") as raised:
        engine.prepare(for_engine(start, engine))
    assert raised.value.kind is Kind.UNAVAILABLE
    assert f"BULLPEN_{engine.name.upper()}_BIN" in (raised.value.hint or "")


@talking
@pytest.mark.parametrize("way", ["prepare", "prepare_run", "check_login"])
def test_e2_a_missing_program_is_said_before_a_missing_login(
    engine: Engine, given_start: Start, tmp_path: Path, way: str
) -> None:
    """`bullpen auth` would be of no use yet."""
    start = replace(given_start, env={"PATH": str(tmp_path / "nowhere")})
    with pytest.raises(BullpenError, match=f"{engine.name} is not installed") as raised:
        getattr(engine, way)(for_engine(start, engine))
    assert (raised.value.hint or "").startswith("npm install -g ")


@talking
def test_a_sandboxed_run_asks_nobody(engine: Engine, given_start: Start) -> None:
    start = replace(for_engine(given_start, engine, "x"), is_sandboxed=True)
    prepared = engine.prepare_run(start)
    open_modes = ("bypassPermissions", "yolo", "danger-full-access")
    shown = json.dumps([prepared.argv, dict(prepared.files)])
    assert any(mode in shown for mode in open_modes)
    walled = engine.prepare_run(for_engine(given_start, engine, "x"))
    shown = json.dumps([walled.argv, dict(walled.files)])
    assert not any(mode in shown for mode in open_modes)


@talking
@way
def test_x2_a_sandboxed_engine_finds_all_it_needs_in_directories_of_its_own(
    engine: Engine, given_start: Start, way: str
) -> None:
    person = given_start.person
    theirs = {
        ".claude/.credentials.json": "claude's login",
        ".claude.json": '{"primaryApiKey": "claude key"}',
        ".codex/auth.json": "codex's login",
        ".codex/AGENTS.md": "the person's words",
        ".codex/prompts/one.md": "a prompt",
        ".codex/rules/mine.rules": "",
        ".gemini/oauth_creds.json": "gemini's login",
        ".gemini/.env": "GEMINI_API_KEY=secret of gemini",
        ".gemini/commands/one.toml": "prompt = 'x'",
        ".gemini/policies/mine.toml": "",
    }
    for name, text in theirs.items():
        (person / name).parent.mkdir(parents=True, exist_ok=True)
        (person / name).write_text(text)
    (given_start.home / "claude-config/default").mkdir(parents=True)
    (given_start.home / "claude-config/default/.credentials.json").write_text("shared login")
    start = replace(for_engine(given_start, engine, "do it"), is_sandboxed=True)
    assert engine.writable(replace(start, is_sandboxed=False)) == ()
    prepared = _written(start, getattr(engine, way)(start))
    for _ in range(2):
        engine.make_ready(start, prepared)
        [own] = engine.writable(start)
        assert own.parent == start.session
        assert own.is_dir()
        assert not own.is_symlink()
        assert any(str(own) == value for value in prepared.env.values())
        assert engine.state_files(start).startswith(f"{own}/")
        assert [path for path in own.rglob("*") if path.is_symlink()] == []
        shown = "".join(_tree(own).values())
        logins = ("login", "claude key", "secret of", *KEYS.values())
        assert [word for word in logins if word in shown] == []
    copied = {
        "claude": {},
        "codex": {"AGENTS.md", "prompts/one.md", "rules/mine.rules", "rules/bullpen.rules"},
        "gemini": {".gemini/commands/one.toml", ".gemini/policies/mine.toml"},
    }
    assert set(copied[engine.name]) <= set(_tree(own))
    assert {name: (person / name).read_text() for name in theirs} == theirs


@talking
@way
def test_f4_a_sandboxed_engine_without_a_key_says_how_to_give_it_one(
    engine: Engine, given_start: Start, way: str
) -> None:
    person = given_start.person
    for name in (".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json"):
        (person / name).parent.mkdir(parents=True)
        (person / name).write_text("{}")
    bare = replace(given_start, env={"PATH": given_start.env["PATH"]})
    start = for_engine(bare, engine, "do it")
    getattr(engine, way)(start)  # outside, the person's login serves
    with pytest.raises(BullpenError, match="cannot use your own login") as raised:
        getattr(engine, way)(replace(start, is_sandboxed=True))
    assert raised.value.kind is Kind.UNAVAILABLE
    assert "bullpen auth set " in (raised.value.hint or "")


@talking
def test_x2_hosts_are_those_of_the_models_api(engine: Engine, given_start: Start) -> None:
    known = {
        "claude": ("api.anthropic.com:443", "ANTHROPIC_BASE_URL"),
        "codex": ("api.openai.com:443", ""),
        "gemini": ("generativelanguage.googleapis.com:443", "GOOGLE_GEMINI_BASE_URL"),
    }
    host, variable = known[engine.name]
    start = for_engine(given_start, engine)
    assert engine.hosts(start) == (host,)
    addresses = {
        "http://127.0.0.1:8801": "127.0.0.1:8801",
        "https://gateway.example/v1/": "gateway.example:443",
        "http://[::1]/x": "[::1]:80",
    }
    for url, expected in addresses.items():
        if variable:
            other = replace(start, env={**start.env, variable: url})
        else:
            provider = {"base_url": url, "env_key": "X", "name": "own", "wire_api": "responses"}
            named = {"model_provider": "own", "model_providers": {"own": provider}}
            other = for_engine(given_start, engine, settings=named)
        assert engine.hosts(other) == (expected,)


@talking
def test_x2_programs_are_where_the_program_lies(engine: Engine, given_start: Start) -> None:
    programs = engine.programs(for_engine(given_start, engine))
    place = Path(given_start.env["PATH"]) / engine.name
    assert any(place.is_relative_to(root) for root in programs)
    assert not any(given_start.session.is_relative_to(root / "x") for root in programs)


def test_a_plain_program_has_nothing_of_its_own_in_a_sandbox(given_start: Start) -> None:
    engine = ENGINES["command"]
    start = replace(for_engine(given_start, engine), is_sandboxed=True)
    assert (engine.writable(start), engine.hosts(start)) == ((), ())
    assert engine.programs(start) == ()  # cat is of the system


def test_a_plain_programs_task_is_its_input(given_start: Start) -> None:
    engine = ENGINES["command"]
    start = replace(for_engine(given_start, engine, "do \ud800 it"), run=given_start.session)
    prepared = engine.prepare_run(start)
    (file,) = prepared.run_files
    assert prepared.run_files[file] == "do ? it"
    assert str(start.run / file) in prepared.argv
    assert engine.read_line(b"a line\r") == (ModelText("a line", is_line=True),)
    assert [engine.outcome_of_exit(code, None, "").fault for code in (0, 1)] == ["", "engine_error"]


# -- what comes back -------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = (
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    *("StopFailure", "Interrupt", "Notification", "PreCompact", "PostCompact", "PreCompress"),
    *("BeforeAgent", "AfterAgent", "BeforeTool", "AfterTool", "PermissionRequest"),
)
FIELDS = (
    *("tool_name", "tool_input", "source", "session_id", "notification_type", "details"),
    *("message", "error", "trigger"),
)
hooks = st.dictionaries(st.sampled_from(FIELDS) | st.text(), values, max_size=6)
named = st.builds(
    lambda hook, event: {**hook, "hook_event_name": event},
    hooks,
    st.sampled_from(EVENTS) | values,
)
often = settings(max_examples=80)


@pytest.mark.storm
@every
@given(hook=named, at=st.floats(0, 1e10))
@often
def test_no_hook_is_too_strange_to_be_observed(
    engine: Engine, hook: dict[str, Any], at: float
) -> None:
    told = engine.observe(hook, at)
    if told is not None:
        assert (told.at, told.rung) == (at, "hook")
        assert len(told.says) <= 80
        assert told.source.startswith("hook ")


@pytest.mark.few(2)
@every
@given(hook=named)
@often
def test_a_hook_names_a_conversation_by_an_id_or_not_at_all(
    engine: Engine, hook: dict[str, Any]
) -> None:
    assert engine.conversation(hook) in ("", hook.get("session_id"))
    for hostile in ("../../etc/passwd", "--resume", "01a1e29b-4f8e-7c21-82ad-fdfff48671aa\n"):
        assert engine.conversation({**hook, "session_id": hostile}) == ""


@every
@given(text=st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
@often
def test_no_state_file_and_no_line_is_too_strange_to_be_read(engine: Engine, text: bytes) -> None:
    engine.read_state_file(text)
    assert isinstance(engine.read_line(text), tuple)


NESTED = b'{"type": "result", "sessionId": ' + b"[" * 200_000
HUGE = {"sessionId": str(uuid.UUID(int=1)), "pid": 1, "status": "idle", "type": "result"}


@every
@pytest.mark.parametrize(
    "number", [10**400, float("inf"), float("nan"), -1], ids=lambda number: repr(number)[:4]
)
def test_numbers_beyond_measure_and_depths_without_end_are_read(
    engine: Engine, number: float
) -> None:
    assert engine.read_state_file(NESTED) is None
    assert isinstance(engine.read_line(NESTED), tuple)
    usage = dict.fromkeys(("total_cost_usd", "duration_ms", "input_tokens"), number)
    text = json.dumps({**HUGE, **usage, "statusUpdatedAt": number, "usage": usage}).encode()
    found = engine.read_state_file(text)
    assert found is None or found.told is None
    assert isinstance(engine.read_line(text), tuple)


KINDS = ("system", "assistant", "user", "result", "init", "message", "tool_use", "tool_result")
THREAD = ("thread.started", "turn.completed", "turn.failed", "error", "item.started")
keys = st.sampled_from(
    ("item", "error", "usage", "stats", "status", "subtype", "message", "role", "is_error")
)


@every
@given(
    fields=st.dictionaries(keys, values, max_size=5),
    kind=st.sampled_from((*KINDS, *THREAD, "item.completed")),
)
@often
def test_a_line_that_says_nothing_of_success_is_none(
    engine: Engine, fields: dict[str, Any], kind: str
) -> None:
    lines = engine.read_line(json.dumps({**fields, "type": kind}).encode())
    ended = [line for line in lines if isinstance(line, RunOutcome)]
    assert all(line.fault for line in ended if line.is_retryable)
    says_so = kind == "turn.completed" or fields.get("status") == "success"
    if not says_so and fields.get("is_error") is not False:
        assert all(line.fault for line in ended)


@every
@given(text=st.text())
@often
def test_what_is_typed_holds_no_control_character_of_the_text(engine: Engine, text: str) -> None:
    keys = b"".join(engine.typed(text))
    if keys:
        found = re.fullmatch(rb"[\x15\x7f]*\x1b\[200~(.*)\x1b\[201~\r", keys, re.DOTALL)
        assert found is not None, keys
        inside = found[1].decode()
        controls = [char for char in inside if unicodedata.category(char) == "Cc"]
        assert set(controls) <= {"\n", "\t"}


# -- recorded from the programs themselves ---------------------------------------------------

hooked = sorted(path.parent.name for path in SAMPLES.glob("*/hooks.jsonl"))
recordings = pytest.mark.parametrize("name", hooked)


@recordings
def test_recorded_hooks_name_their_conversation_and_end_idle(name: str) -> None:
    engine = ENGINES[name]
    lines = (SAMPLES / name / "hooks.jsonl").read_text().splitlines()
    hooks = [json.loads(line) for line in lines]
    told = [seen for hook in hooks if (seen := engine.observe(hook, 1.0))]
    assert told[-1].state == Idle()
    assert UUID.fullmatch(engine.conversation(hooks[0]))


# How each recorded run ended: a new recording needs a line here.
ENDS = {
    "codex/run-401.jsonl": (
        "engine_error",
        "unexpected status 401 Unauthorized: scripted 401, url: http://127.0.0.1:1/v1/responses",
    ),
    "codex/run-429.jsonl": (
        "rate_limit",
        "exceeded retry limit, last status: 429 Too Many Requests",
    ),
    "codex/run-ok.jsonl": ("", ""),
    "gemini/run-401.jsonl": (
        "engine_error",
        '[API Error: {"error":{"code":401,"message":"scripted 401","status":"UNAUTHENTICATED"}}]',
    ),
    "gemini/run-ok.jsonl": ("", ""),
}


def test_every_recorded_run_is_looked_at() -> None:
    assert ENDS.keys() == {f"{file.parent.name}/{file.name}" for file in SAMPLES.glob("*/run-*")}


@pytest.mark.parametrize(("file", "end"), ENDS.items())
def test_recorded_runs_end_as_they_did(file: str, end: tuple[str, str]) -> None:
    engine = ENGINES[Path(file).parent.name]
    lines = (SAMPLES / file).read_bytes().splitlines()
    told = [said for line in lines for said in engine.read_line(line)]
    assert isinstance(told[0], TurnBegun)
    assert UUID.fullmatch(told[0].conversation)
    (outcome,) = [said for said in told if isinstance(said, RunOutcome)]
    assert outcome is told[-1]
    assert (outcome.fault, outcome.why) == end
    assert not outcome.is_retryable
    # The model was asked only where it answered.
    assert bool(outcome.input_tokens) == bool(outcome.output_tokens) == (not outcome.fault)


def test_t8_what_a_tool_is_used_on_is_told_in_a_line() -> None:
    used = [
        said
        for name in ("codex", "gemini")
        for line in (SAMPLES / name / "run-ok.jsonl").read_bytes().splitlines()
        for said in ENGINES[name].read_line(line)
        if isinstance(said, ToolUsed)
    ]
    assert used == [
        ToolUsed("Bash", "/bin/bash -lc 'echo hi'"),
        ToolUsed("mcp__fleet__whoami"),
        ToolUsed("run_shell_command", "echo hi"),
        ToolUsed("run_shell_command", "touch x"),
        ToolUsed("mcp_fleet_whoami"),
    ]


@talking
@given(text=st.text(st.characters(codec=None), min_size=1), size=st.integers(1, 2000))
@often
def test_a_detail_is_one_short_line_whatever_the_model_wrote(
    engine: Engine, text: str, size: int
) -> None:
    command = text * size
    calls = {
        "claude": {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "name": "x", "input": {"path": command}}]},
        },
        "codex": {
            "type": "item.started",
            "item": {"type": "command_execution", "command": command},
        },
        "gemini": {"type": "tool_use", "tool_name": "x", "parameters": {"command": command}},
    }
    [used] = engine.read_line(json.dumps(calls[engine.name]).encode())
    assert isinstance(used, ToolUsed)
    assert len(used.detail) <= 200
    assert used.detail.isprintable()
    used.detail.encode()


def test_t8_what_an_answer_used_is_counted_once() -> None:
    def line(id: str, block: dict[str, Any], tokens: int = 1) -> bytes:
        usage = {"input_tokens": 7, "cache_read_input_tokens": 5, "output_tokens": tokens}
        message = {"id": id, "content": [block], "usage": usage}
        return json.dumps({"type": "assistant", "message": message}).encode()

    text, tool = {"type": "text", "text": "hi"}, {"type": "tool_use", "name": "Bash", "input": {}}
    reader = Reader(ENGINES["claude"])
    lines = [line("m1", text), line("m1", tool), line("m2", text, 3)]
    told = [said for each in lines for said in reader.read(each)]
    assert told == [
        TokensSpent(12, 1, "m1"),
        ModelText("hi"),
        ToolUsed("Bash"),
        TokensSpent(12, 3, "m2"),
        ModelText("hi"),
    ]
    again = Reader(ENGINES["claude"])  # of another run, or of the same after a restart
    assert again.read(lines[1]) == (TokensSpent(12, 1, "m1"), ToolUsed("Bash"))


# As the programs said it to the fakes of their APIs.
FAILED = {
    "codex": [
        ("unexpected status 403 Forbidden: scripted 403, url: http://x", "engine_error", False),
        ('{"error": {"message": "scripted 400", "code": null}}', "engine_error", False),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit", False),
        ("exceeded retry limit, last status: 500 Internal", "engine_error", True),
        ("unexpected status 503 Service Unavailable: scripted 503", "engine_error", True),
        (
            "We\u2019re currently experiencing high demand, which may cause temporary errors.",
            "engine_error",
            True,
        ),
        (
            "stream disconnected before completion: Transport error: network error: error decoding",
            "engine_error",
            True,
        ),
        ("Codex ran out of room in the model's context window.", "engine_error", False),
    ],
    "gemini": [
        ('[API Error: {"error":{"code":400,"message":"scripted 400"}}]', "engine_error", False),
        ('[API Error: {"error":{"code":403,"message":"scripted 403"}}]', "engine_error", False),
        ('[API Error: {"error":{"code":500,"message":"scripted 500"}}]', "engine_error", True),
        ("[API Error: scripted 503]", "engine_error", True),
        (
            "[API Error: scripted 429]\nPlease wait and try again later. To increase your limits,"
            " request a quota increase through AI Studio",
            "rate_limit",
            False,
        ),
        (
            "[API Error: exception TypeError: fetch failed sending request]",
            "engine_error",
            True,
        ),
        ("Reached max session turns for this session.", "engine_error", False),
        ("", "engine_error", True),  # an answer that broke off
    ],
}


@pytest.mark.parametrize(
    ("name", "why", "fault", "is_retryable"),
    [(name, *each) for name, cases in FAILED.items() for each in cases],
)
def test_t9_which_failures_pass_by_themselves(
    name: str, why: str, fault: str, is_retryable: bool
) -> None:
    error = {"message": why} if why else None
    line = {"type": "turn.failed" if name == "codex" else "result", "status": "error"}
    [ended] = ENGINES[name].read_line(json.dumps({**line, "error": error}).encode())
    assert isinstance(ended, RunOutcome)
    assert (ended.fault, ended.is_retryable) == (fault, is_retryable)


@pytest.mark.parametrize(
    ("code", "signal", "said", "why", "is_retryable"),
    [
        (1, None, "error: unknown option '--x'\n", "error: unknown option '--x'", False),
        (2, None, "error: unexpected argument\n\nUsage: codex\n", "error: unexpected", False),
        (1, None, "", "exit code 1 without a result", False),
        (0, None, "", "exit code 0 without a result", False),
        (0, None, "Warning: timed out\n", "exit code 0", False),
        (1, None, "x\nError: connect ECONNREFUSED 1.2.3.4\n", "Error: connect ECONN", True),
        (2, None, "sh: 1: cannot open /x/prompt.json: No such file\n", "cannot open", False),
        (1, None, "\x1b[31mbwrap: setting up uid map\x1b[0m\n", "bwrap: setting up", False),
        (None, 9, "", "SIGKILL", True),
        (None, 15, "half a word", "half a word (ended by signal SIGTERM)", True),
        (None, 99, "", "signal 99", True),
        (143, None, "", "SIGTERM", True),
        (139, None, "", "SIGSEGV", True),
        (145, None, "", "exit code 145", False),  # a status of the API's, cut to a byte
    ],
)
def test_t9_an_end_without_a_word_is_a_failure(
    code: int | None, signal: int | None, said: str, why: str, is_retryable: bool
) -> None:
    ended = outcome_of_exit(code, signal, said)
    assert (ended.fault, ended.text, ended.is_retryable) == ("engine_error", "", is_retryable)
    assert why in ended.why


@given(
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    said=st.text(st.characters(codec=None)),
)
@often
def test_no_end_is_too_strange(code: int | None, signal: int | None, said: str) -> None:
    why = outcome_of_exit(code, signal, said * 50).why
    assert why.isprintable()
    assert 0 < len(why) <= 500


# -- helpers ---------------------------------------------------------------------------------


def _written(start: Start, prepared: Prepared) -> Prepared:
    for name, text in prepared.files.items():
        (start.session / name).write_text(text)
    return prepared


def _without_ids(argv: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(UUID.sub("ID", word) for word in argv)


def _tree(directory: Path) -> dict[str, str]:
    """Names and contents, links as where they point; ids of new conversations are left out."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_text()
    return found


def _commands(prepared: Prepared) -> list[str]:
    """The commands of all hooks in all files."""
    loaders = {".json": json.loads, ".toml": tomllib.loads}
    found = []
    for name, text in prepared.files.items():
        load = loaders.get(Path(name).suffix)
        hooks = load(text).get("hooks", {}) if load else {}
        for groups in hooks.values():
            for group in groups if isinstance(groups, list) else []:
                found += [action.get("command", "") for action in group["hooks"]]
    return found


@pytest.mark.parametrize(
    ("name", "screen", "about"),
    [
        ("claude", " Is this a project you created or one\n you trust? (Like your own", "trust"),
        ("claude", "Choose the text style that looks best with your terminal", "theme"),
        ("claude", "Some new question\n Enter to confirm · Esc to cancel", "other"),
        ("claude", "❯ Try 'edit x'\n  ? for shortcuts", ""),
        ("gemini", "│ Do you trust the files │\n│ in this folder?        │", "trust"),
        ("codex", "  Sign in with ChatGPT to use Codex", "login"),
        (
            "codex",
            "  Config, hooks, and exec policies from untrusted folders stay\n  disabled. Trusted",
            "trust",
        ),
        ("codex", "› Ask Codex to do anything", ""),
        ("command", "Enter to confirm", ""),
    ],
)
def test_s3_a_dialog_at_a_start_is_known_by_its_words(name: str, screen: str, about: str) -> None:
    assert ENGINES[name].find_dialog(screen.split("\n")) == about

"""An agent's own file: what it may say, what wins over the role, what other files forbid."""

import resource
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.agent_files import (
    check_agent_document,
    list_agent_files,
    load_agent_file,
    session_directory,
    write_agent_file,
)
from bullpen.home.check import check_data
from bullpen.home.paths import Home
from bullpen.home.yamlfile import read
from bullpen.model.agent_file import AgentFile
from bullpen.model.role import Role
from tests.hostile_names import HOSTILE


@pytest.fixture
def pen(home: Path) -> Home:
    (home / "agents").mkdir()
    (home / "directors").mkdir()
    return Home(home)


def write(pen: Home, name: str, text: str, directory: str = "agents") -> Path:
    path = pen.root / directory / f"{name}.yaml"
    path.write_text(text)
    return path


def problems(pen: Home, name: str, text: str) -> list[tuple[int, str, str]]:
    document = read(write(pen, name, text))
    return [(p.line, p.key, p.message) for p in check_agent_document(document, pen)[1]]


def role(**fields: Any) -> Role:
    return Role.model_validate({"name": "coder", **fields})


WRITTEN = """\
# our tester
role: coder   # not reviewer
claude:
  timeout: 30m  # long enough
labels: {team: 'web'}
env:
  A: "1"
"""


def test_c5_a_changed_file_keeps_its_comments_and_its_form(pen: Home) -> None:
    path = write(pen, "amy", WRITTEN)
    shown = load_agent_file(pen, "amy").model_dump(mode="json")
    write_agent_file(pen, "amy", shown)  # sent back as it was shown: nothing changes
    assert path.read_text() == WRITTEN
    changed = write_agent_file(pen, "amy", {**shown, "port": 9001, "labels": {}, "env": {"A": "2"}})
    assert changed == load_agent_file(pen, "amy")
    text = path.read_text()
    for line in ("# our tester", "role: coder   # not reviewer", "  timeout: 30m  # long enough"):
        assert line in text.splitlines()
    assert (changed.port, changed.labels, changed.env) == (9001, {}, {"A": "2"})
    # What is missing is as in a new file, and goes.
    assert write_agent_file(pen, "amy", {"role": "coder"}) == AgentFile(role="coder")
    assert path.read_text() == "# our tester\nrole: coder   # not reviewer\n"


@pytest.mark.parametrize("before", ["role: [", "- 1", "", "role: coder\nrole: coder\n", "[" * 999])
def test_c5_a_file_that_cannot_be_kept_is_begun_anew(pen: Home, before: str) -> None:
    path = write(pen, "amy", before)
    odd = {"A": "yes\n# no comment: \u2028 'x' \"y\" null", "B": "0x1f", "C": ""}
    file = write_agent_file(pen, "amy", {"role": "coder", "env": odd})
    assert file.env == load_agent_file(pen, "amy").env == odd
    assert path.stat().st_mode & 0o777 == 0o600
    file = write_agent_file(pen, "amy", {"role": "coder", "env": {**odd, "D": "~"}})
    assert load_agent_file(pen, "amy") == file


def test_c4_the_hubs_port_is_no_agents(pen: Home) -> None:
    (pen.root / "hub.json").write_text('{"port": 9017}')
    ((line, key, message),) = problems(pen, "amy", "role: coder\nport: 9017\n")
    assert (line, key) == (2, "port")
    assert "the hub's port" in message
    assert problems(pen, "amy", "role: coder\nport: 9018\n") == []


def test_c4_defaults(pen: Home) -> None:
    write(pen, "amy", "role: coder\n")
    file = load_agent_file(pen, "amy")
    assert (file.port, file.log_level, file.keep_open, file.autostart) == (
        *(None, "info"),
        *(False, False),
    )
    assert (file.claude.timeout, file.claude.max_turns) == (timedelta(minutes=30), 50)
    assert (file.max_retries, file.open_timeout, file.history_limit) == (
        *(3, timedelta(hours=1)),
        None,
    )
    assert session_directory(pen, "amy", file) == pen.root / "sessions/amy/work"


def test_c4_every_field_is_read(pen: Home) -> None:
    write(
        pen,
        "amy",
        "port: 9001\nrole: coder\nlabels: {gpu: 'yes'}\nlog_level: debug\n"
        "claude:\n  model: opus\n  timeout: 5m\n  max_turns: 7\nsession_dir: scratch\n"
        "keep_open: true\nsandbox: {allow_network: false}\nenv: {A: b}\nautostart: true\n"
        "history_limit: 5\nmax_retries: 0\nopen_timeout: 10m\n",
    )
    file = load_agent_file(pen, "amy")
    assert set(AgentFile.key_names()) == file.model_fields_set
    assert (file.port, file.role, file.labels, file.env) == (
        9001,
        "coder",
        {"gpu": "yes"},
        {"A": "b"},
    )
    assert (file.claude.model, file.claude.timeout) == ("opus", timedelta(minutes=5))
    assert session_directory(pen, "amy", file) == pen.root / "scratch"


def test_session_directory_may_be_absolute_or_in_the_persons_home(pen: Home) -> None:
    for text, path in (("/var/work", Path("/var/work")), ("~/work", Path.home() / "work")):
        file = AgentFile(role="coder", session_dir=text)
        assert session_directory(pen, "amy", file) == path


@pytest.mark.parametrize(
    ("in_file", "in_role", "model"),
    [
        (None, {}, "sonnet"),
        (None, {"model": "haiku"}, "haiku"),
        ("opus", {"model": "haiku"}, "opus"),
        ("opus", {}, "opus"),
        (None, {"agent_type": "gemini"}, None),
        (None, {"agent_type": "gemini", "model": "pro"}, "pro"),
    ],
)
def test_c4_model_of_the_file_then_of_the_role_then_sonnet(
    in_file: str | None, in_role: dict[str, str], model: str | None
) -> None:
    file = AgentFile.model_validate({"role": "coder", "claude": {"model": in_file}})
    assert file.apply_to(role(**in_role)).model == model


def test_c4_only_given_fields_of_the_sandbox_win_over_the_role() -> None:
    of_role = role(sandbox={"enabled": True, "allow_network": False, "read_only_paths": ["."]})
    file = AgentFile.model_validate({"role": "coder", "sandbox": {"allow_network": True}})
    got = file.apply_to(of_role).sandbox
    assert (got.enabled, got.allow_network, got.read_only_paths) == (True, True, (".",))
    assert AgentFile(role="coder").apply_to(of_role).sandbox == of_role.sandbox
    empty = AgentFile.model_validate({"role": "coder", "sandbox": {"enabled": None}})
    assert empty.apply_to(of_role).sandbox == of_role.sandbox


def test_env_and_labels_are_put_over_the_roles() -> None:
    of_role = role(env={"A": "1", "B": "2"}, labels={"x": "1"})
    file = AgentFile.model_validate(
        {"role": "coder", "env": {"B": "3"}, "labels": {"x": "2", "y": "3"}}
    )
    got = file.apply_to(of_role)
    assert (got.env, got.labels) == ({"A": "1", "B": "3"}, {"x": "2", "y": "3"})
    assert check_data(Role, got.model_dump(by_alias=True, exclude_unset=True))[1] == []


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("port: 9001\n", 1, "role", "is required"),
        ("role: coder\nport: 0\n", 2, "port", "0 is too small · at least 1"),
        ("role: coder\nport: 65536\n", 2, "port", "65536 is too large · at most 65535"),
        ("role: coder\nport: true\n", 2, "port", "true is no whole number"),
        ("role: coder\nprot: 1\n", 2, "prot", "unknown key · did you mean port?"),
        (
            "role: coder\nlog_level: warning\n",
            *(2, "log_level"),
            '"warning" is not allowed · did you mean warn? · one of debug, info, warn, error',
        ),
        (
            "role: coder\nclaude:\n  timeout: 0s\n",
            *(3, "claude.timeout"),
            "0s is too short · e.g. 90s, 10m, 1h30m, 7d",
        ),
        (
            "role: coder\nclaude:\n  max_turns: 0\n",
            *(3, "claude.max_turns"),
            "0 is too small · at least 1",
        ),
        (
            "role: coder\nclaude:\n  model: --evil\n",
            *(3, "claude.model"),
            '"--evil" is not allowed · one word that does not begin with -',
        ),
        (
            "role: coder\nsandbox:\n  allow_netwrk: true\n",
            *(3, "sandbox.allow_netwrk"),
            "unknown key · did you mean allow_network?",
        ),
        ("role: codr\n", 1, "role", "no role called codr · did you mean coder?"),
        ("role: coder\nenv:\n  A: 1\n", 3, "env.A", "the value is no text · put it in quotes"),
        (
            "role: coder\nenv:\n  BULLPEN_TOKEN: x\n",
            *(3, "env.BULLPEN_TOKEN"),
            "BULLPEN_* variables are set by Bullpen itself",
        ),
    ],
)
def test_c3_mistakes_are_told_with_line_and_key(
    pen: Home, text: str, line: int, key: str, message: str
) -> None:
    assert problems(pen, "amy", text) == [(line, key, message)]
    with pytest.raises(BullpenError) as caught:
        load_agent_file(pen, "amy")
    assert caught.value.kind is Kind.INVALID
    assert f"amy.yaml:{line}  {key}  {message}" in caught.value.message


def test_port_of_another_file_or_of_the_hub_is_refused(
    pen: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = "role: coder\nport: 9001\n"
    write(pen, "bob", "port: 9002\nrole: [broken\n")
    write(pen, "amy", mine)
    assert load_agent_file(pen, "amy").port == 9001
    told = [(2, "port", "9001 is the port of agents/bob.yaml already · choose another")]
    write(pen, "bob", "port: 9001\nwhatever: 1\n")
    assert problems(pen, "amy", mine) == told
    write(pen, "bob", "role: coder\n")
    assert problems(pen, "amy", mine) == []
    monkeypatch.chdir(pen.root)  # its own file is not another, however it is named
    assert check_agent_document(read(Path("agents/amy.yaml")), pen)[1] == []
    director = write(pen, "clock", "type: scheduler\nport: 9001\n", "directors")
    assert "directors/clock.yaml" in problems(pen, "amy", mine)[0][2]
    director.unlink()
    (pen.directors / "forge").mkdir()
    director = write(pen, "forge/director", "port: 9001\n", "directors")
    assert "directors/forge/director.yaml" in problems(pen, "amy", mine)[0][2]
    director.unlink()
    pen.config_file.write_text("port: 9001\n")
    assert "config.yaml" in problems(pen, "amy", mine)[0][2]


def test_c5_a_disk_without_room_is_said_with_the_file_and_keeps_the_old_one(pen: Home) -> None:
    path = write(pen, "amy", "role: coder\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(BullpenError) as caught:
            write_agent_file(pen, "amy", {"role": "coder", "port": 9001})
        with pytest.raises(OSError, match="github-token"):
            credentials.store(pen, "github-token", b"hush")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.kind is Kind.UNAVAILABLE
    assert str(path) in caught.value.message
    assert [each.name for each in pen.agents.iterdir()] == ["amy.yaml"]
    assert path.read_text() == "role: coder\n"


def test_model_of_claude_with_the_role_of_another_engine_is_refused(pen: Home) -> None:
    (pen.roles / "gem.yaml").write_text("name: gem\nagent_type: gemini\n")
    told = "is for Claude, and role gem is gemini's · set it in the role"
    assert problems(pen, "amy", "role: gem\nclaude: {model: opus}\n") == [(2, "claude.model", told)]
    assert problems(pen, "amy", "role: gem\nclaude: {timeout: 5m}\n") == []


def test_unknown_agent_is_not_found_and_the_nearest_named(pen: Home) -> None:
    write(pen, "amy", "role: coder\n")
    with pytest.raises(BullpenError, match=r"called ami · did you mean amy\?") as caught:
        load_agent_file(pen, "ami")
    assert caught.value.kind is Kind.NOT_FOUND
    assert str(pen.agents / "ami.yaml") in caught.value.hint


@pytest.mark.parametrize("name", HOSTILE)
def test_name_that_is_none_never_becomes_a_path(pen: Home, name: str) -> None:
    (pen.root / "amy.yaml").write_text("role: coder\n")  # what ../amy would reach
    with pytest.raises(BullpenError) as caught:
        load_agent_file(pen, name)
    assert caught.value.kind is Kind.INVALID


def test_list_has_right_names_only_and_no_directories(pen: Home) -> None:
    for name in ("bob", "amy", "Carl", "hub", ".hidden"):
        write(pen, name, "role: coder\n")
    (pen.agents / "dir.yaml").mkdir()
    assert list_agent_files(pen) == ["amy", "bob"]
    document = read(pen.agents / "Carl.yaml")
    [problem] = check_agent_document(document, pen)[1]
    assert "agent name 'Carl' is not allowed" in problem.message


def test_home_without_agents_has_none(tmp_path: Path) -> None:
    assert list_agent_files(Home(tmp_path)) == []

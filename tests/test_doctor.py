"""The doctor finds what is wrong, says how to put it right, and leaves nothing behind."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen import credentials
from bullpen.cli.commands import doctor
from bullpen.credentials import WAYS
from bullpen.engines.versions import PROGRAMS, is_enough, parse_version
from bullpen.homes import create_home
from bullpen.paths import Home, short_sockets
from tests.conftest import Ran
from tests.engines.cli import PINS, program

Bullpen = Callable[..., Ran]


@pytest.fixture
def home() -> Iterator[Home]:
    """One whose sockets need no short cut, whatever the length of pytest's own paths."""
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    yield create_home(root)
    shutil.rmtree(root)


def found(ran: Ran) -> dict[str, Any]:
    return {check["name"]: check for check in ran.json["checks"]}


def fake_git(tmp_path: Path, says: str) -> str:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\necho '{says}'\n")
    (tools / "git").chmod(0o755)
    return f"{tools}:/usr/bin:/bin"


VERSIONS = {"claude": "2.1.325 (Claude Code)", "gemini": "0.61.0", "codex": "codex-cli 0.166.0"}
KEYS = {"ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k", "CODEX_API_KEY": "k"}


def fake_engines(directory: Path, **scripts: str) -> str:
    """Programs of those names, and a PATH with no other engines on it."""
    directory.mkdir()
    for name, script in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    (directory / "git").symlink_to(shutil.which("git") or "/usr/bin/git")
    (directory / "sleep").symlink_to(shutil.which("sleep") or "/bin/sleep")
    return str(directory)


def says(version: str) -> str:
    return f'[ "$*" = --version ] && echo "{version}"'


@pytest.fixture
def path(tmp_path: Path) -> str:
    scripts = {name: says(version) for name, version in VERSIONS.items()}
    return fake_engines(tmp_path / "engines", **scripts)


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for ways in WAYS.values():
        for variable in (*ways.reads, *ways.gives, ways.variable):
            monkeypatch.delenv(variable, raising=False)


def test_all_is_well(home: Home, bullpen: Bullpen, path: str) -> None:
    before = sorted(home.root.rglob("*"))
    ran = bullpen("doctor", cwd=home.root, PATH=path, **KEYS)
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    lacks = [line.split()[0] for line in ran.out.splitlines() if line.startswith(" ")]
    assert set(lacks) == {"lacks:"}
    column = lines[0].index("git") + max(len(line.split()[1]) for line in lines) + 2
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines)
    # Where systemd runs there is one more, which is not in the test's hands.
    lines = [line for line in lines if line.split()[1] != "lingering"]
    assert [line.split()[:2] for line in lines] == [
        ["ok", name]
        for name in ("git", "python", "claude", "gemini", "codex", "home", "modes", "sockets")
    ]
    assert lines[2].endswith("  2.1.325   login: ANTHROPIC_API_KEY of your shell")
    assert ", 0700, " in lines[5]
    assert " v0.1.0, " in lines[5]
    assert lines[5].endswith(" free")
    assert sorted(home.root.rglob("*")) == before


def test_without_a_home_the_rest_is_checked_and_init_named(bullpen: Bullpen) -> None:
    ran = bullpen("doctor", "--json")
    assert ran.code == 0
    assert ran.json["ok"] is True
    checks = found(ran)
    assert [name for name in checks if name not in ("lingering", *VERSIONS)] == [
        *("git", "python", "home")
    ]
    assert checks["home"]["status"] == "warn"
    assert checks["home"]["fix"] == "bullpen init"
    assert sys.executable in checks["python"]["text"]


@pytest.mark.parametrize(
    ("says", "status", "text"),
    [
        ("git version 2.38.0", "ok", "2.38.0"),
        ("git version 3.0.1 (Apple Git-154)", "ok", "3.0.1"),
        ("git version 2.37.9", "fail", "2.37.9, needs 2.38"),
        ("git version 1.99", "fail", "1.99, needs 2.38"),
        ("no idea", "fail", "git --version says 'no idea'"),
    ],
)
def test_git_versions(tmp_path: Path, bullpen: Bullpen, says: str, status: str, text: str) -> None:
    ran = bullpen("doctor", "--json", PATH=fake_git(tmp_path, says))
    check = found(ran)["git"]
    assert (check["status"], check["text"]) == (status, text)
    assert ran.code == (1 if status == "fail" else 0)


def test_missing_git_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("doctor", PATH=str(tmp_path))
    assert ran.code == 1
    [line] = [line for line in ran.out.splitlines() if line.startswith("fail")]
    assert line.split(maxsplit=2) == ["fail", "git", "not installed · install git 2.38 or newer"]


def test_open_home_is_a_warning_with_the_command(home: Home, bullpen: Bullpen) -> None:
    home.root.chmod(0o755)
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 0
    check = found(ran)["home"]
    assert check["status"] == "warn"
    assert check["fix"] == f"chmod 700 {home.root}"


@pytest.mark.parametrize("name", ["sockets", "credentials"])
def test_h5_open_private_directory_fails_with_the_command(
    home: Home, bullpen: Bullpen, name: str
) -> None:
    (home.root / name).chmod(0o750)
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    assert ran.json["ok"] is False
    check = found(ran)["modes"]
    assert check["status"] == "fail"
    assert f"{name} 0750" in check["text"]
    assert check["fix"] == f"chmod 700 {home.root / name}"


def test_missing_sockets_directory_fails_with_the_command(home: Home, bullpen: Bullpen) -> None:
    home.sockets.rmdir()
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    checks = found(ran)
    assert checks["sockets"]["status"] == "fail"
    assert checks["modes"]["fix"] == f"mkdir -m 700 {home.sockets}"


@pytest.fixture
def long_home(tmp_path: Path) -> Iterator[Home]:
    home = create_home(tmp_path / ("long" * 30))
    yield home
    shutil.rmtree(short_sockets(home).parent)


def test_h5_long_home_is_reached_through_tmp_and_a_stale_link_heals(
    long_home: Home, bullpen: Bullpen
) -> None:
    link = short_sockets(long_home)
    link.unlink()
    link.symlink_to("/gone")
    check = found(bullpen("doctor", "--json", cwd=long_home.root))["sockets"]
    assert check["status"] == "ok"
    assert check["text"] == f"bound and connected through {link}"
    assert list(long_home.sockets.iterdir()) == []


def test_h5_unsafe_directory_in_tmp_fails_with_the_reason(
    long_home: Home, bullpen: Bullpen
) -> None:
    directory = short_sockets(long_home).parent
    directory.chmod(0o777)
    ran = bullpen("doctor", "--json", cwd=long_home.root)
    directory.chmod(0o700)
    assert ran.code == 1
    assert "mode 0700; it is drwxrwxrwx" in found(ran)["sockets"]["text"]


def test_h1_wrong_bullpen_dir_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("doctor", "--json", BULLPEN_DIR=str(tmp_path))
    assert ran.code == 1
    assert "has no .bullpen-dir.txt" in found(ran)["home"]["text"]


# ── engines ──


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("2.1.325 (Claude Code)\n", (2, 1, 325)),
        ("codex-cli 0.166.0\n", (0, 166, 0)),
        ("0.61.0-nightly.20261115.abc1234", (0, 61, 0)),
        ("v20.1", (20, 1)),
        ("1.2.3.4.5", (1, 2, 3, 4)),
        ("node20.1 3.4", (3, 4)),
        ("2", None),
        ("", None),
        ("9" * 5000 + ".1", None),
    ],
)
def test_version_is_read_from_what_programs_say(said: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(said) == version


@pytest.mark.parametrize(
    ("version", "oldest", "enough"),
    [
        ((2, 1, 0), (2, 1, 0), True),
        ((2, 0, 999), (2, 1, 0), False),
        ((0, 40), (0, 40), True),
        ((0, 40, 0), (0, 40), True),
        ((0, 9, 9), (0, 40), False),
        ((0, 100), (0, 100, 0), True),
        ((1, 0), (0, 100), True),
    ],
)
def test_versions_are_compared_by_number(
    version: tuple[int, ...], oldest: tuple[int, ...], enough: bool
) -> None:
    assert is_enough(version, oldest) is enough


@pytest.mark.parametrize("engine", PROGRAMS)
def test_x6_engine_that_is_not_installed_is_a_warning_with_the_command(
    tmp_path: Path, bullpen: Bullpen, engine: str
) -> None:
    ran = bullpen("doctor", "--json", PATH=fake_engines(tmp_path / "engines"))
    assert ran.code == 0
    check = found(ran)[engine]
    assert (check["status"], check["text"]) == ("warn", "not installed")
    assert check["fix"] == f"npm install -g {PROGRAMS[engine].package}"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (says("2.0.99 (Claude Code)"), "2.0.99, needs 2.1.0"),
        (says("no idea"), "--version ends with 0, says 'no idea'"),
        (
            "echo 2.1.5; echo 'needs Node 20' >&2; exit 3",
            "--version ends with 3, says 'needs Node 2",
        ),
        ("kill -9 $$", "--version ends with -9"),
    ],
)
def test_x6_engine_that_does_not_serve_fails(
    tmp_path: Path, bullpen: Bullpen, script: str, text: str
) -> None:
    path = fake_engines(tmp_path / "engines", claude=script)
    ran = bullpen("doctor", "--json", PATH=path, **KEYS)
    assert ran.code == 1
    check = found(ran)["claude"]
    assert check["status"] == "fail"
    assert text in check["text"]
    assert check["fix"] == "npm install -g @anthropic-ai/claude-code"


def test_x6_engine_that_hangs_is_given_up_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 0.5)
    pidfile = tmp_path / "pid"
    hang = f"echo $$ > {pidfile}; sleep 300; echo 2.1.5"
    monkeypatch.setenv("PATH", fake_engines(tmp_path / "engines", claude=hang))
    check = doctor.check_engine("claude", None)
    assert check.status == "fail"
    assert "did not end within 0.5 s" in check.text
    with pytest.raises(ProcessLookupError):
        os.kill(int(pidfile.read_text()), 0)


def test_x6_file_that_is_no_program_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake_engines(tmp_path / "engines"))
    (tmp_path / "engines" / "codex").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "engines" / "codex").chmod(0o755)
    check = doctor.check_engine("codex", None)
    assert (check.status, "cannot start" in check.text) == ("fail", True)


@pytest.mark.parametrize("engine", PROGRAMS)
def test_e3_variable_names_the_program(tmp_path: Path, bullpen: Bullpen, engine: str) -> None:
    path = fake_engines(tmp_path / "engines", **{engine: says("0.0.1")})
    other = tmp_path / "other"
    other.write_text(f"#!/bin/sh\n{says('9.9.9')}\n")
    other.chmod(0o755)
    variable = PROGRAMS[engine].variable
    ran = bullpen("doctor", "--json", PATH=path, **KEYS, **{variable: str(other)})
    assert found(ran)[engine]["status"] == "ok"
    assert found(ran)[engine]["text"].startswith("9.9.9 ")
    ran = bullpen("doctor", "--json", PATH=path, **{variable: "/no/such"})
    assert found(ran)[engine]["status"] == "fail"
    assert "/no/such" in found(ran)[engine]["text"]


def test_f4_doctor_says_which_login_or_how_to_get_one(
    home: Home, bullpen: Bullpen, path: str, tmp_path: Path
) -> None:
    def claude(**env: str) -> tuple[str, str, str]:
        check = found(bullpen("doctor", "--json", cwd=home.root, PATH=path, **env))["claude"]
        return check["status"], check["text"].partition("login: ")[2], check["fix"]

    status, text, fix = claude()
    assert (status, text) == ("warn", "none found")
    assert fix.startswith("bullpen auth claude")
    own = tmp_path / "person" / ".claude"
    own.mkdir()
    (own / ".credentials.json").write_text("{}")
    assert claude() == ("ok", "your own (~/.claude)", "")
    (home.claude_config / ".credentials.json").write_text("{}")
    assert claude()[1] == f"bullpen auth claude ({home.claude_config})"
    credentials.store(home, "claude-token", b"sk-ant-oat01-secret")
    assert claude()[1] == "claude-token of this home"
    (home.credentials / "claude-token").chmod(0o640)
    status, _, fix = claude()
    assert (status, fix) == ("fail", f"chmod 600 {home.credentials / 'claude-token'}")


def test_f4_doctor_fails_for_a_credential_that_others_can_read(
    home: Home, bullpen: Bullpen, path: str
) -> None:
    credentials.store(home, "github-token", b"ghp_secret")
    (home.credentials / "github-token").chmod(0o644)
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path, **KEYS)
    check = found(ran)["modes"]
    assert (ran.code, check["status"]) == (1, "fail")
    assert check["fix"] == f"chmod 600 {home.credentials / 'github-token'}"


@pytest.mark.slow
@pytest.mark.parametrize("engine", PROGRAMS)
def test_x6_real_program_is_new_enough(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PROGRAMS[engine].variable, str(program(engine)))
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    check = doctor.check_engine(engine, None)
    assert check.status == "ok", check
    pins = json.loads(PINS.read_text())["dependencies"]
    assert check.text.split()[0] == pins[PROGRAMS[engine].package]

"""The table and the boundary: help, suggestions, exit codes, quiet ends, light imports."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

from bullpen.cli import output
from bullpen.cli.main import SECTIONS, VERBS, run
from bullpen.errors import EXIT_CODES, BullpenError, Kind
from tests.commands import BULLPEN, Ran
from tests.waiting import wait_until

Bullpen = Callable[..., Ran]
Failing = Callable[[BaseException], None]


@pytest.fixture
def version_raises(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Make `bullpen version` fail, at the place where a verb's module is loaded."""

    def replace(error: BaseException) -> None:
        @click.command()
        @output.json_option
        def command(as_json: bool) -> None:
            raise error

        module = ModuleType("bullpen.cli.commands.version")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return replace


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_reads_well(bullpen: Bullpen, flag: str) -> None:
    ran = bullpen(flag)
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    for title, verbs in SECTIONS.items():
        assert f"{title}:" in lines
        for verb, text in verbs.items():
            assert [verb, *text.split()] in [line.split() for line in lines]


@pytest.mark.parametrize("verb", ["init", "doctor", "version", "completion"])
def test_verb_help_has_a_sentence_and_its_options(bullpen: Bullpen, verb: str) -> None:
    ran = bullpen(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: bullpen {verb} ")
    assert VERBS[verb].split()[0] in ran.out


def test_unknown_command_suggests_the_near_one(bullpen: Bullpen) -> None:
    ran = bullpen("innit")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: no such command: innit · did you mean init?",
        "hint:  bullpen --help",
    ]
    assert "did you mean" not in bullpen("xyzzy").err


def test_unknown_option_is_a_usage_error(bullpen: Bullpen) -> None:
    ran = bullpen("version", "--jsn")
    assert ran.code == 2
    assert ran.out == ""
    assert "--jsn" in ran.err
    assert "hint:  bullpen version --help" in ran.err
    as_json = bullpen("version", "--json", "--jsn")
    assert as_json.code == 2
    found = json.loads(as_json.err)
    assert (found["error"], found["hint"]) == ("invalid", "bullpen version --help")


def test_every_kind_has_an_exit_code_of_its_own() -> None:
    assert set(EXIT_CODES) == set(Kind)
    assert len(set(EXIT_CODES.values())) == len(Kind)
    assert not {0, 70, 130, 141} & set(EXIT_CODES.values())


@pytest.mark.parametrize("kind", Kind)
def test_exit_code_and_message_by_kind(
    version_raises: Failing, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    version_raises(BullpenError("it broke", hint="mend it", kind=kind))
    assert run(["version"]) == EXIT_CODES[kind]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: it broke\nhint:  mend it\n"


def test_h6_json_errors_are_json_on_stderr(
    version_raises: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    version_raises(
        BullpenError("it broke", hint="mend it", kind=Kind.CONFLICT, details={"name": "amy"})
    )
    assert run(["version", "--json"]) == 5
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err) == {
        "error": "conflict",
        "message": "it broke",
        "hint": "mend it",
        "details": {"name": "amy"},
    }


def test_bug_is_70_and_says_how_to_report_it(
    version_raises: Failing, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version_raises(ZeroDivisionError("oops"))
    assert run(["version"]) == 70
    said = capsys.readouterr().err
    assert "this is a bug in bullpen: ZeroDivisionError: oops" in said
    assert "Traceback" not in said
    monkeypatch.setenv("BULLPEN_DEBUG", "1")
    run(["version"])
    assert "Traceback" in capsys.readouterr().err


def test_control_characters_in_messages_are_made_visible(
    version_raises: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    version_raises(BullpenError("bad \x1b[31mname\x07 \u202e\x9b \udcff", hint="\x1b]0;x"))
    run(["version"])
    said = capsys.readouterr().err
    assert not any(char in said for char in "\x1b\x07\u202e\x9b\udcff")
    assert r"bad \x1b[31mname\x07 \u202e" in said


def test_control_characters_in_paths_are_made_visible(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("init", "red\x1b[31m")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert r"red\x1b[31m" in ran.out


def test_ctrl_c_is_130_and_takes_the_child_along(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(
        '#!/bin/sh\necho $$ > "$PIDFILE.new"\nmv "$PIDFILE.new" "$PIDFILE"\nexec sleep 300\n'
    )
    (tmp_path / "git").chmod(0o755)
    pidfile = tmp_path / "pid"
    # A test runner started in the background ignores SIGINT, and hands that down.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from bullpen.cli.main import run; sys.exit(run(['doctor']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PIDFILE": str(pidfile)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(pidfile.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pidfile.read_text()), 0)


@pytest.mark.parametrize("words", [["--help"], ["version"], ["doctor", "--json"]])
def test_broken_pipe_is_quiet(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [BULLPEN, *words], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "code"), [("version >&-", 0), ("roel 2>&-", 2), ("task amy - <&-", 2)]
)
def test_a_closed_stream_is_an_empty_one(words: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" {words}', BULLPEN], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, b"bug in bullpen" in done.stderr) == (code, False), done.stderr


def test_a_terminal_that_is_not_utf8_gets_what_it_can_show(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "HOME": str(tmp_path)}
    done = subprocess.run(
        [BULLPEN, "version"], cwd=tmp_path, env=env, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert rb"none \xb7 bullpen init" in done.stdout


def test_h6_version_imports_nothing_heavy(tmp_path: Path, bullpen: Bullpen) -> None:
    assert bullpen("init").code == 0
    code = (
        "import sys; from bullpen.cli.main import run; code = run(['version']);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(tmp_path / ".bullpen") in done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "click" in loaded
    assert not loaded & {
        "pydantic",
        "rich",
        "fastapi",
        "ruamel",
        "asyncio",
        "hashlib",
        "subprocess",
    }


@pytest.mark.parametrize("words", [(), ("role",), ("worktree",), ("pod",)])
def test_no_arguments_show_the_help_and_no_error(
    bullpen: Callable[..., Ran], words: tuple[str, ...]
) -> None:
    done = bullpen(*words)
    assert done.code == 2
    assert done.out.startswith("Usage: bullpen")
    assert done.err == ""


def test_control_characters_in_tables_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["\x1b]0;pwned\x07", "a\nb"], ["c", "\u202ed\x9b31m"]]
    output.write_table(["ONE", "TWO"], rows)
    output.write_table([], rows)
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [
        ["ONE", "TWO"],
        *[[r"\x1b]0;pwned\x07", r"a\nb"], ["c", r"\u202ed\x9b31m"]] * 2,
    ]

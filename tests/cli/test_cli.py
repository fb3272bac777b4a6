"""The table and the boundary: help, suggestions, exit codes, quiet ends, light imports."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

from bullpen import __version__
from bullpen.cli import main, output
from bullpen.cli.choose_agent import pick
from bullpen.cli.main import INTERNAL, SECTIONS, VERBS, run
from bullpen.cli.watch_list import began_to_wait, drawn
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
@pytest.mark.slow
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


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click").mkdir()
    (tmp_path / "click/__init__.py").write_text("import os; os.kill(os.getpid(), 2)\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([BULLPEN, "gc"], env=env, capture_output=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


@pytest.mark.parametrize("name", ["shop", "a shop"])
def test_h6_errors_name_paths_as_a_person_writes_them(
    bullpen: Bullpen, tmp_path: Path, name: str
) -> None:
    """Where a shell would not expand `~`, and in JSON, the whole path stays."""
    env = {"HOME": str(tmp_path), "BULLPEN_DIR": str(tmp_path / name)}
    assert f"error: BULLPEN_DIR is ~/{name}, which has no" in bullpen("list", **env).err
    message = json.loads(bullpen("list", "--json", **env).err)["message"]
    assert f"BULLPEN_DIR is {tmp_path}/{name}, which has no" in message
    (tmp_path / name).mkdir()
    assert bullpen("init", cwd=tmp_path / name, HOME=str(tmp_path)).code == 0
    command = f"export BULLPEN_DIR={shlex.quote(f'{tmp_path}/{name}/.bullpen')}"
    assert bullpen("list", **env).err.endswith(f"\nhint:  {command}\n")


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


@pytest.mark.parametrize("words", [("role",), ("worktree",), ("pod",)])
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


class AtTerminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


RECORD = [
    ("name", "coder"),
    ("permissions.agent.enabled", "on when it has instructions"),
    ("text", "Write small commits and say why"),
    ("", "then stop"),
    ("deny", "Read(~/.docker/config.json)"),
]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            "40",
            [
                "name                coder",
                "permissions.agent.enabled",
                "                    on when it has",
                "                    instructions",
                "text                Write small commits",
                "                    and say why",
                "                    then stop",
                "deny         Read(~/.docker/config.json)",
            ],
        ),
        (
            "52",
            [
                "name                       coder",
                "permissions.agent.enabled  on when it has",
                "                           instructions",
                "text                       Write small commits and",
                "                           say why",
                "                           then stop",
                "deny                     Read(~/.docker/config.json)",
            ],
        ),
    ],
)
def test_a_record_breaks_no_word_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", AtTerminal())
    output.write_table([], RECORD)
    assert sys.stdout.getvalue().splitlines() == lines  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_a_table_fits_the_terminal_and_is_coloured_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], is_coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", AtTerminal())
    output.write_table(["NAME", "PORT", "TEXT"], [["amy", "8123", "x" * 90]], drop=("PORT",))
    output.show_progress("")
    shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert ("\x1b[2m" in shown) is is_coloured
    assert ("\x1b" in shown) is (env.get("TERM") != "dumb")
    assert shown.splitlines()[1] == "amy   " + "x" * 23 + "…"


def _aborted_by(cause: type[BaseException] | None) -> click.Abort:
    try:
        try:
            raise cause() if cause else click.Abort
        except (KeyboardInterrupt, EOFError):
            raise click.Abort from None
    except click.Abort as abort:
        return abort


@pytest.mark.parametrize(
    ("stop", "written"),
    [
        (KeyboardInterrupt(), "\n"),
        (_aborted_by(KeyboardInterrupt), "\n"),
        (_aborted_by(EOFError), "\n"),
        (_aborted_by(None), ""),
    ],
)
def test_ctrl_c_ends_the_line_and_a_no_has_ended_it(
    monkeypatch: pytest.MonkeyPatch, stop: BaseException, written: str
) -> None:
    monkeypatch.setattr(sys, "stderr", AtTerminal())
    main._end_line(stop)
    assert sys.stderr.getvalue() == written  # type: ignore[attr-defined]


# ── habits ──


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_printed_as_other_programs_do(bullpen: Bullpen, flag: str) -> None:
    assert bullpen(flag).out == f"bullpen {__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "as_options"),
    [
        (["help"], ["--help"]),
        (["help", "run"], ["run", "--help"]),
        (["help", "worktree", "create"], ["worktree", "create", "--help"]),
        (["help", "task"], ["task", "--help"]),
        (["ps", "--help"], ["ps", "-h"]),
    ],
)
def test_help_may_be_asked_for_by_a_word(
    bullpen: Bullpen, words: list[str], as_options: list[str]
) -> None:
    ran = bullpen(*words)
    assert ran.code == 0
    assert ran == bullpen(*as_options)


def test_help_of_nothing_suggests_the_near_one(bullpen: Bullpen) -> None:
    ran = bullpen("help", "innit")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "error: no such command: innit · did you mean init?",
    )


def test_what_agents_programs_call_is_not_in_the_help_and_works(bullpen: Bullpen) -> None:
    ran = bullpen("--help")
    for verb in INTERNAL:
        assert f" {verb} " not in ran.out
        assert bullpen(verb, "--help").code == 0


def test_alone_outside_of_a_home_it_says_how_to_begin(bullpen: Bullpen) -> None:
    ran = bullpen()
    assert (ran.code, ran.err) == (0, "")
    assert "bullpen init" in ran.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "chosen"), [("2", "bob"), ("bob", "bob"), ("a", "amy"), ("b", None), ("4", None)]
)
def test_an_agent_is_chosen_by_number_name_or_its_beginning(text: str, chosen: str | None) -> None:
    names = ["amy", "bob", "bobby"]
    if chosen is None:
        with pytest.raises(click.UsageError):
            pick(text, names)
    else:
        assert pick(text, names) == chosen


def test_attach_says_what_becomes_of_no_name(bullpen: Bullpen) -> None:
    text = " ".join(bullpen("attach", "--help").out.split())
    assert "Without NAME: the one that runs; of several you choose." in text


def test_a_watched_list_rings_for_those_who_begin_to_wait() -> None:
    before = {"amy": "blocked (permission: Bash)", "bob": "blocked (question)"}
    now = {**before, "amy": "blocked (permission: Edit)", "cleo": "blocked (dialog: trust)"}
    assert began_to_wait(before, now) == [
        "amy: blocked (permission: Edit)",
        "cleo: blocked (dialog: trust)",
    ]


def test_a_watched_list_fits_the_screen() -> None:
    screen = drawn("a\nb\nc\nd\n", 20, 3)
    assert screen.replace("\x1b[K", "").split("\r\n") == [
        "\x1b[Ha",
        "b",
        "… 2 more lines\x1b[J",
    ]
    assert drawn("a\n", 20, 3) == "\x1b[Ha\x1b[K\x1b[J"

"""Programs that we run are found in absolute entries of PATH only.

The rule is in `proc.py`. Where it searches relative entries, too, what is planted here runs.
"""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bullpen
from bullpen import proc
from bullpen.cli.doctor.machine import check_search_path
from bullpen.component import service
from bullpen.engines.programs import find_program
from bullpen.engines.versions import PROGRAMS
from bullpen.errors import BullpenError
from bullpen.home.create import create_home
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

SOURCE = Path(bullpen.__file__).parent
NAMES = ("git", "sh", "env", "tmux", "bwrap", "ssh", "rm", "claude")
RELATIVE = [".", "", "bin", "./bin", "../trap"]

# Who starts programs but by `proc.run`, and why that is safe.
STARTERS = {
    "proc.py": "this is it",
    "hub/holders/factory.py": "our Python, by its path",
    "client/start.py": "our Python, by its path",
    "worktrees/pool.py": "our Python, by its path",
    "cli/commands/hub.py": "our Python, by its path",
    "cli/commands/fleet.py": "from the scripts of our Python, or by `find_program`",
    "cli/start_component.py": "our Python, by its path",
    "component/supervise.py": "our Python, by its path",
    "hot/hook.py": "our Python, by its path",
    "hot/permission.py": "our Python, by its path",
    "worktrees/trash.py": "by `get_program`",
    "cli/tmux_panes.py": "by `get_program`",
    "cli/own_pager.py": "the shell by `get_program`; what it runs finds programs in a clean PATH",
    "cli/setup_token.py": "by `find_program`",
    "holder/child.py": "an agent's program; `Factory.hold` cleaned its PATH",
    "sandboxes/relay.py": "an agent's program, inside; `Factory.hold` cleaned its PATH",
}
STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput"},
    "os": {"system", "popen", "posix_spawn", "posix_spawnp"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "shutil": {"which"},
}
MAY_START = re.compile(r"subprocess|shutil\.which|\b(os|posix)\.(exec|spawn|system|popen|posix_)")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A repository in which an agent has left programs; `proof` says which of them ran."""
    directory = make_repo(tmp_path / "trap")
    for name in NAMES:
        for path in (directory / name, directory / "bin" / name):
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {name} >>{tmp_path / 'proof'}\n")
            path.chmod(0o755)
    return directory


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "proof"


def run(*words: str, cwd: Path, entry: str) -> "subprocess.CompletedProcess[str]":
    path = f"{entry}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [BULLPEN, *words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_b1_the_trap_works_where_a_program_is_looked_up_without_care(
    trap: Path, proof: Path
) -> None:
    env = {**os.environ, "PATH": f".:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", "-c", "git"], cwd=trap, env=env, check=True)
    assert proof.read_text() == "git\n"


@pytest.mark.parametrize("entry", [".", pytest.param("", marks=pytest.mark.slow)])
def test_b1_commands_run_no_program_of_the_current_directory(
    trap: Path, proof: Path, entry: str
) -> None:
    assert run("init", cwd=trap, entry=entry).returncode == 0
    listed = run("worktree", "list", cwd=trap, entry=entry)
    assert listed.returncode == 0, listed.stderr
    assert not proof.exists()


@pytest.mark.slow
def test_b1_doctor_runs_none_and_says_that_they_are_left_out(trap: Path, proof: Path) -> None:
    said = run("doctor", cwd=trap, entry="bin").stdout
    assert not proof.exists()
    assert "relative entries are left out, for us and for agents: bin" in said


@pytest.mark.parametrize("entry", RELATIVE)
def test_b1_what_we_start_finds_none_either(
    trap: Path, proof: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """As git does that looks for ssh."""
    monkeypatch.chdir(trap)
    env = {**os.environ, "PATH": f"{entry}:{os.environ['PATH']}"}
    done = proc.run(["sh", "-c", 'echo "$PATH"; rm --version; git --version'], cwd=trap, env=env)
    assert done.text.splitlines()[0] == os.environ["PATH"]
    assert not proof.exists()


@pytest.mark.parametrize("entry", RELATIVE)
def test_e1_an_engines_program_is_not_found_by_a_relative_entry(
    trap: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.chdir(trap)
    with pytest.raises(BullpenError, match="is not installed"):
        find_program({"PATH": f"{entry}:/nowhere"}, PROGRAMS["claude"])
    assert find_program({"PATH": f"{entry}:{trap}"}, PROGRAMS["claude"]) == str(trap / "claude")


# ── agents ──


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        yield made


@pytest.mark.slow
def test_b1_an_agents_program_is_not_looked_up_where_it_works(
    pen: Pen, trap: Path, proof: Path, tmp_path: Path
) -> None:
    path = pen.env["PATH"]
    told = tmp_path / "told"
    words = ("sh", "-c", 'echo "$PATH" >"$0".new && mv "$0".new "$0"; exec sleep 1000', str(told))
    pen.start()
    done = pen.cli(
        "run", "--name", "amy", "--detach", "--", *words, cwd=trap, PATH=f".::bin:{path}"
    )
    assert done.code == 0, done.err
    assert "relative entries, which agents do not get: ., ., bin" in done.err
    wait_until(told.exists)
    assert told.read_text() == f"{path}\n"
    assert not proof.exists()


def test_b1_the_unit_gets_no_relative_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ".:/usr/bin:")
    units, _ = service.install(create_home(tmp_path / "home"), Path("/python"), tmp_path)
    for unit in units:
        assert "Environment=PATH=/usr/bin\n" in unit.read_text()


# ── the rule ──


@pytest.mark.parametrize(
    ("given", "kept", "left_out"),
    [
        ("/a:/b", "/a:/b", []),
        (".:/a", "/a", ["."]),
        (":/a::/b:", "/a:/b", [".", ".", "."]),
        ("bin:../x:~/bin:/a", "/a", ["bin", "../x", "~/bin"]),
        ("", "", []),
    ],
)
def test_b1_entries_that_are_left_out(
    given: str, kept: str, left_out: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proc.absolute_entries(given) == kept
    assert proc.relative_entries(given) == left_out
    monkeypatch.setenv("PATH", given)
    check = check_search_path()
    assert (check is None) == (not left_out)


def test_b1_a_program_that_moves_is_found_again(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    env = {"PATH": f"{first}:{second}"}
    for directory in (first, second):
        directory.mkdir()
    assert proc.find_program("tool", env) is None
    (second / "tool").write_text("#!/bin/sh\n")
    assert proc.find_program("tool", env) is None, "it cannot be run"
    (second / "tool").chmod(0o755)
    assert proc.find_program("tool", env) == str(second / "tool")
    (second / "tool").rename(first / "tool")
    assert proc.find_program("tool", env) == str(first / "tool")
    (first / "tool").unlink()
    (first / "tool").mkdir()
    with pytest.raises(BullpenError, match="cannot start tool"):
        proc.get_program("tool", env)


def test_b1_nobody_else_starts_or_looks_up_programs() -> None:
    """A new one goes by `proc.run`, or is added here with its reason."""
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    starters = {
        name
        for name, text in texts.items()
        if MAY_START.search(text)  # most do not, and to parse them all takes seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _starts(node.func)
    }
    assert starters == set(STARTERS)


def _starts(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    module, name = function.value.id, function.attr
    is_exec = module in ("os", "posix") and name.startswith(("exec", "spawn"))
    return is_exec or name in STARTS.get(module, ())

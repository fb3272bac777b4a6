"""Python that we start takes no code from the current directory, where an agent may have put some.

The defence is `-P` in `hot/own_python.py`, and its `TRUSTED_DIRECTORY` for what is relative in the
environment. Without either, what is planted here runs.
"""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bullpen
from bullpen.cli import tmux_panes
from bullpen.component import service
from bullpen.home.paths import Home
from bullpen.hot.hook_line import ask_line, hook_line
from bullpen.hot.own_python import module_command
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until
from tests.worktrees.repos import make_repo

SOURCE = Path(bullpen.__file__).parent
PLANTED = ("bullpen/__init__.py", "json.py", "sitecustomize.py", "usercustomize.py", "click.py")

# Who names our Python but by `own_python`, and why that is safe.
OTHERS = {
    "hot/own_python.py": "this is it",
    "hot/hook.py": "runs `module_command`",
    "hot/permission.py": "runs `module_command`",
    "cli/commands/hub.py": "runs `module_command`; the unit is written by it, too",
    "holder/__init__.py": "-I -S, the standard library alone",
    "sandboxes/bubblewrap.py": "-I -S, the standard library alone",
    "hub/agents/program.py": "given to `hook_line`: -I -S",
    "cli/doctor/machine.py": "prints it",
}


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A directory as an agent may leave it; `proof` is there as soon as anything of it has run."""
    directory = tmp_path / "trap"
    plant(directory, tmp_path / "proof")
    return directory


def plant(directory: Path, proof: Path) -> None:
    for name in PLANTED:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(proof)!r}, 'a').write({name!r})\n")


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "proof"


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        yield made


def run(words: list[str], cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_b1_the_trap_works_where_python_is_started_without_care(trap: Path, proof: Path) -> None:
    run([sys.executable, "-m", "bullpen", "version"], trap)
    assert proof.exists()


def test_b1_a_module_of_ours_is_run_from_where_it_is_installed(trap: Path, proof: Path) -> None:
    done = run(module_command("bullpen", "version"), trap)
    assert (done.returncode, done.stderr) == (0, "")
    assert run([str(BULLPEN), "version"], trap).returncode == 0
    assert not proof.exists()


def test_b1_python_m_bullpen_loads_nothing_more_from_there(trap: Path, proof: Path) -> None:
    """The package itself is found before any of our code runs; what it loads is not."""
    for name in ("bullpen/__init__.py", "sitecustomize.py", "usercustomize.py"):
        (trap / name).unlink()
    (trap / "bullpen").rmdir()
    assert run([sys.executable, "-m", "bullpen", "version"], trap).returncode == 0
    assert not proof.exists()


@pytest.mark.parametrize("make", [hook_line, ask_line])
def test_b1_the_lines_of_hooks_run_nothing_of_the_agents_directory(
    trap: Path, proof: Path, tmp_path: Path, make: type
) -> None:
    """Without a home they hand over to the whole command line."""
    words = make(sys.executable, str(SOURCE.parent), "amy")
    done = run(
        words, trap, BULLPEN_DIR=str(tmp_path / "nowhere"), PYTHONPATH="", PYTHONUSERBASE="."
    )
    assert "Traceback" not in done.stderr
    run(words, trap, PYTHONPATH=".")
    assert not proof.exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["start", "foreground"])
@pytest.mark.few(1)
def test_b1_a_hub_runs_nothing_of_the_directory_that_it_is_started_in(
    pen: Pen, trap: Path, proof: Path, way: str
) -> None:
    """Nor of the home, where it works."""
    plant(pen.root, proof)
    env = {**pen.env, "BULLPEN_DIR": str(pen.root)}
    if way == "start":
        assert run([str(BULLPEN), "hub", "start"], trap, **env).returncode == 0
    else:
        words = [*module_command("bullpen"), "hub", "start", "--foreground"]
        process = subprocess.Popen(words, cwd=trap, env=env)
        try:
            wait_until(lambda: pen.answers() or process.poll() is not None, 60)
            assert pen.answers()
            assert Path(f"/proc/{process.pid}/cwd").resolve() == pen.root
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert not proof.exists()


@pytest.mark.slow
def test_b1_the_pools_helper_runs_nothing_of_the_current_directory(
    trap: Path, proof: Path, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    base = tmp_path / "base"
    code = (
        "import pathlib, sys; from bullpen.worktrees import pool, site\n"
        "where = site.open_site(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pool=1)\n"
        "pool.refill_in_background(where)"
    )
    done = run([sys.executable, "-P", "-c", code, str(repo), str(base)], trap)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(list(base.glob(".pool/*/*/.git"))) == 1, 60)
    assert not proof.exists()


def test_b1_panes_and_the_unit_start_it_with_care() -> None:
    command = module_command("bullpen")
    pane = tmux_panes._bullpen(Home(Path("/home")), "attach", "amy")
    assert pane[-len(command) - 2 : -2] == command
    text = service.unit_text(Path(sys.executable), Path("/home"))
    assert f"ExecStart={' '.join(command)} hub start --foreground\n" in text
    assert "WorkingDirectory=/\n" in text


@pytest.mark.slow
def test_b1_nobody_else_names_our_python() -> None:
    """A new start of Python goes by `module_command`."""
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "executable"
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    }
    assert users == set(OTHERS)

"""The command as pip installs it: our own script, in place of the generated one."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen import __version__
from tests.commands import BULLPEN
from tests.standin import StandIn

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "scripts/bin/bullpen"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def run(*words: str | Path, cwd: Path | None = None, **env: str) -> str:
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_installed_command_is_our_script() -> None:
    """With pip's first line, or with the three that `scripts/setup` writes."""
    ours = SCRIPT.read_text().removeprefix("#!python\n")
    found = BULLPEN.read_text()
    assert found in (f"#!{sys.executable}\n{ours}", f"{through_shell(BULLPEN.parent)}{ours}")


def through_shell(directory: Path) -> str:
    return f"#!/bin/sh\n'''exec' \"{directory}/python\" \"$0\" \"$@\"\n' '''\n"


@pytest.mark.parametrize("name", ["a b", "long" * 30, "plain"])
def test_setup_mends_a_first_line_that_the_kernel_cannot_read(place: Path, name: str) -> None:
    binaries = place / name / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    ours = SCRIPT.read_text().removeprefix("#!python\n")
    command = binaries / "bullpen"
    command.write_text(f"#!{binaries}/python\n{ours}")
    text = (PROJECT / "scripts/setup").read_text()
    block = text[text.index("bin=$(") : text.index("# By all cores")]
    run("sh", "-eu", "-c", f"venv=$1\n{block}", "sh", place / name)
    first = f"#!{binaries}/python\n" if name == "plain" else through_shell(binaries)
    assert command.read_text() == first + ours


def test_words_reach_the_command_as_they_are(tmp_path: Path) -> None:
    run(BULLPEN, "init", 'it\'s  a "$HOME" *', cwd=tmp_path)
    assert (tmp_path / 'it\'s  a "$HOME" *' / ".bullpen-dir.txt").exists()


def test_editable_install_is_a_plain_path() -> None:
    """A finder that is imported at every start would cost more than the hot verbs may."""
    found = list(Path(sysconfig.get_path("purelib")).glob("__editable__.bullpen-*.pth"))
    if not found:
        pytest.skip("not an editable install")
    assert [path.read_text() for path in found] == [f"{PROJECT / 'src'}\n"]


def pip(venv: Path, *words: str | Path) -> None:
    subprocess.run([*PIP, "--python", venv / "bin/python", *words], check=True, timeout=300)


def files_of(place: Path) -> set[Path]:
    """Of the package, whatever they are: what is not code (roles, instructions) is needed, too."""
    found = (path.relative_to(place) for path in (place / "bullpen").rglob("*") if path.is_file())
    return {path for path in found if path.suffix != ".pyc"}


@pytest.mark.storm
@pytest.mark.parametrize("before", ["nothing", "generated"])
def test_wheel_installs_over_what_was_there_and_leaves(place: Path, before: str) -> None:
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    for name in ("src", "scripts"):
        # What the page is built from is in no wheel.
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "frontend")
        shutil.copytree(PROJECT / name, source / name, ignore=ignored)
    build = [*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    venv = place / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    command = venv / "bin/bullpen"

    if before == "generated":
        # As it was until 0.1.0: an entry point.
        config = source / "pyproject.toml"
        ours = config.read_text()
        script = 'script-files = ["scripts/bin/bullpen"]'
        assert script in ours
        entry = '[project.scripts]\nbullpen = "bullpen.cli.main:main"\n'
        config.write_text(f"{ours.replace(script, '')}\n{entry}")
        subprocess.run([*build, place / "old", source], check=True, timeout=300)
        pip(venv, "install", "--quiet", "--no-deps", "--no-index", *(place / "old").glob("*.whl"))
        assert "cli.fast" not in command.read_text()
        config.write_text(ours)
        shutil.rmtree(source / "build")

    subprocess.run([*build, place / "new", source], check=True, timeout=300)
    [wheel] = (place / "new").glob("*.whl")
    pip(venv, "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel)
    assert command.read_text().startswith(f"#!{venv}/bin/python\n")
    assert files_of(next(venv.glob("lib/python*/site-packages"))) == files_of(source / "src")

    home = place / "home"
    (home / "sockets").mkdir(parents=True)
    (home / ".bullpen-dir.txt").write_text(f"v{__version__}\n")
    hub = StandIn(home / "sockets/hub.sock")
    # Nothing else is in that environment: a hot verb needs none of the dependencies.
    assert run(command, "list", BULLPEN_DIR=str(home)) == "text\n"
    hub.close()

    pip(venv, "uninstall", "--quiet", "--yes", "bullpen")
    assert not command.exists()

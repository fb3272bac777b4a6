"""What every test stands on: an isolated environment, a command runner, a home.

No test may touch the real home: HOME is a fresh directory, inherited BULLPEN_*
and GIT_* are dropped (the suite may run inside an agent, or inside a git hook).
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forked
from tests.commands import BULLPEN, Ran
from tests.homes import STARTER

pytest_plugins = ["tests.examples", "tests.order", "tests.second_look", "tests.tiers"]

forked.install()

# Of a shell's background job SIGINT is ignored, by all that it starts, too; tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("BULLPEN_", "GIT_", "_BULLPEN")):
            monkeypatch.delenv(name)
    person = tmp_path / "person"
    person.mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(person / ".config"))
    monkeypatch.setenv("NO_COLOR", "1")
    for name, value in {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Tess",
        "GIT_AUTHOR_EMAIL": "tess@example.com",
        "GIT_COMMITTER_NAME": "Tess",
        "GIT_COMMITTER_EMAIL": "tess@example.com",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bullpen(tmp_path: Path) -> Callable[..., Ran]:
    """The installed command, in a process of its own."""

    def call(*words: str | Path, cwd: Path = tmp_path, stdin: str = "", **env: str) -> Ran:
        given = {**os.environ, **env}
        done = forked.run([*map(str, (BULLPEN, *words))], cwd, given, stdin.encode(), 120)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the starter files, made without `init`."""
    root = tmp_path / "home"
    shutil.copytree(STARTER, root)
    (root / "pods" / "roles").mkdir()
    (root / ".bullpen-dir.txt").write_text("v0.1.0\n")
    monkeypatch.setenv("BULLPEN_DIR", str(root))
    return root

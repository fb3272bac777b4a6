"""The component of docs/component.md: seen, drained, stopped; killed and shown as gone."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hub.pen import Pen, made_pen
from tests.hub.permissions.asking import Asking
from tests.pages import PROJECT
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# What it asked for, into a file; ends when it may.
RING = 'echo "$@" >rung; until [ -e go ]; do sleep 0.05; done'


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.run(name="amy")
        yield made


@contextmanager
def running(pen: Pen, directory: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The component of the page."""
    text = (PROJECT / "docs/component.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (directory / "bell.py").write_text(program)
    words = [sys.executable, "bell.py", str(pen.root), "bell", "bell.yaml"]
    process = subprocess.Popen(words, cwd=directory, env=pen.env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seen(pen: Pen) -> tuple[str, str] | None:
    """Its state and its health, as the command shows them."""
    shown = pen.cli("components", "--json").json["components"]
    return next(((one["state"], one["health"]) for one in shown if one["name"] == "bell"), None)


def test_f1_the_component_of_the_docs_is_seen_drained_and_stopped(pen: Pen, tmp_path: Path) -> None:
    asking = Asking(pen)
    with (
        reserved_port() as port,
        ThreadPoolExecutor() as threads,
    ):
        (tmp_path / "bell.yaml").write_text(f"port: {port}\ncommand: [sh, -c, '{RING}', ring]\n")
        with running(pen, tmp_path) as bell:
            wait_until(lambda: seen(pen) == ("idle", "healthy"))
            hook = asking.ask("make all")
            wait_until(lambda: seen(pen) == ("working", "healthy"))
            leaving = threads.submit(pen.cli, "shutdown", "--port", str(port), "--timeout", "1m")
            wait_until(lambda: seen(pen) == ("draining", "healthy"))
            assert bell.poll() is None
            (tmp_path / "go").touch()
            assert leaving.result().code == 0
            assert bell.wait(60) == 0
            assert (tmp_path / "rung").read_text() == "amy make all\n"
            assert seen(pen) is None
            hook.kill()


def test_f1_the_component_of_the_docs_that_is_killed_is_shown_as_gone(
    pen: Pen, tmp_path: Path
) -> None:
    (tmp_path / "bell.yaml").write_text("command: ['true']\n")
    with running(pen, tmp_path) as bell:
        wait_until(lambda: seen(pen) == ("idle", "healthy"))
        bell.kill()
        bell.wait()
        assert seen(pen) == ("idle", "unreachable")


def test_f1_a_mistake_in_its_file_is_told_with_its_line(pen: Pen, tmp_path: Path) -> None:
    (tmp_path / "bell.yaml").write_text("command: [ls]\nprot: 9010\n")
    with running(pen, tmp_path) as bell:
        assert bell.wait(60) == 2

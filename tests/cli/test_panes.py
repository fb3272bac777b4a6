"""Several agents side by side, in a real tmux."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.cli import tmux_panes as panes
from bullpen.client.call import Fields
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        yield made


def agent(name: str, pod: str = "", parent: str = "", running: bool = True) -> Fields:
    return Fields(name=name, pod=pod, parent=parent, running=running)


def test_a4_members_of_a_pod_and_of_a_tree() -> None:
    agents = [
        agent("a", "team"),
        agent("b", "team", parent="a"),
        agent("c", "other", parent="b"),
        agent("d", "team", running=False),
        agent("e"),
    ]
    assert panes.of_pod("team")(agents) == ["a", "b"]
    assert panes.of_tree("a")(agents) == ["a", "b", "c"]
    assert panes.of_tree("e")(agents) == ["e"]


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator["Tmux"]:
    """A server of its own; the panes' server is the default one of that directory."""
    found = Tmux(tmp_path)
    yield found
    for name in ("outer", "default"):
        found.run("-L", name, "kill-server", check=False)


class Tmux:
    def __init__(self, place: Path) -> None:
        self.env = {**os.environ, "TMUX_TMPDIR": str(place)}
        self.env.pop("TMUX", None)

    def run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", *words], env=self.env, capture_output=True, text=True, check=check
        )
        return done.stdout

    def panes(self) -> list[str]:
        words = ("list-panes", "-s", "-t", "bullpen-team", "-F", "#{pane_title}")
        listed = self.run(*words, check=False)
        return sorted(line.split(" ")[0] for line in listed.splitlines())


@needs_tmux
@pytest.mark.storm
def test_a4_pod_attach_shows_a_pane_per_member_and_new_ones_as_they_start(
    pen: Pen, tmux: Tmux
) -> None:
    for name in ("amy", "bob"):
        pen.run("cat", pod="team", name=name)
    shell = f"env -u TMUX BULLPEN_DIR={pen.root} {BULLPEN} pod attach team"
    tmux.run("-L", "outer", "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", shell)
    wait_until(lambda: tmux.panes() == ["amy", "bob"])
    pen.run("cat", pod="other", name="eve")
    pen.run("cat", pod="team", name="cleo")
    wait_until(lambda: tmux.panes() == ["amy", "bob", "cleo"])
    tmux.run("kill-session", "-t", "bullpen-team")
    running = {name: agent["running"] for name, agent in pen.agents().items()}
    assert running == dict.fromkeys(("amy", "bob", "cleo", "eve"), True)


def test_a4_without_tmux_it_says_how(pen: Pen) -> None:
    pen.run("cat", pod="team", name="amy")
    said = pen.cli("pod", "attach", "team", PATH="/nowhere")
    assert said.code == 0
    assert "bullpen attach amy" in said.out


def test_a4_without_members_or_a_terminal_it_is_refused(pen: Pen) -> None:
    pen.start()
    assert pen.cli("pod", "attach", "team").code == 4
    pen.run("cat", pod="team", name="amy")
    refused = pen.cli("pod", "attach", "team")
    assert refused.code == 2
    assert "terminal" in refused.err

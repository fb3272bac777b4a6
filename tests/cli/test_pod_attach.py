"""A pod's agents side by side in tmux: a private server, real agents, and a person's moves.

Two servers of a directory of their own: `outer` plays the person's terminal, the default one is
where panes open. A person who is in tmux already is in `outer`.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.cli.tmux_panes import AGENT, of_pod, of_tree, room
from bullpen.client.call import Fields
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.hub.tree.support import Grove
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SLOW = pytest.mark.slow
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


# ── who is shown ──


def agent(name: str, pod: str = "", parent: str = "", running: bool = True) -> Fields:
    return Fields(name=name, pod=pod, parent=parent, running=running)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (of_pod("team"), ["a", "b"]),
        (of_pod("nope"), []),
        (of_tree("a"), ["a", "b", "c"]),
        (of_tree("b"), ["b", "c"]),
        (of_tree("z"), ["z", "e", "g"]),
        (of_tree("d"), ["f"]),
        (of_tree("nobody"), []),
    ],
)
def test_a4_running_members_of_a_pod_or_a_tree(chosen: object, names: list[str]) -> None:
    agents = [
        agent("a", "team"),
        agent("b", "team", parent="a"),
        agent("c", "other", parent="b"),
        agent("d", "team", running=False),
        agent("e", parent="z"),
        agent("f", parent="d"),
        agent("g", parent="e"),
        agent("z"),
    ]
    assert callable(chosen)
    assert chosen(agents) == names


@pytest.mark.parametrize(
    ("columns", "rows", "panes"),
    [(80, 24, 6), (200, 50, 30), (120, 40, 15), (79, 15, 2), (20, 4, 2), (1, 1, 2)],
)
def test_a4_panes_stay_big_enough_to_work_in(columns: int, rows: int, panes: int) -> None:
    assert room(columns, rows) == panes


# ── in a real tmux ──


class Person:
    """At a terminal of 120 by 40."""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen
        self.env = {
            **pen.env,
            "BULLPEN_DIR": str(pen.root),
            "TMUX_TMPDIR": str(pen.root.parent),
            "SHELL": "/bin/sh",
        }

    def tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", *words], env=self.env, capture_output=True, text=True, check=False, timeout=30
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def types(self, *words: str, columns: int = 120, rows: int = 40) -> None:
        """In a new terminal. It stays, with the exit code, when the command has ended."""
        home = f"BULLPEN_DIR={self.env['BULLPEN_DIR']}"
        command = shlex.join(["env", "-u", "TMUX", "-u", "TMUX_PANE", home, str(BULLPEN), *words])
        shell = f"{command}; echo CODE $?; exec sleep 1000"
        size = ("-x", str(columns), "-y", str(rows))
        self.tmux("-L", "outer", "-f", "/dev/null", "new-session", "-d", *size, shell)

    def panes(self, session: str = "bullpen-team", *server: str) -> list[list[str]]:
        """Agents by window, as the panes are marked."""
        words = ("list-panes", "-s", "-t", f"={session}", "-F", f"#{{window_index}} #{{{AGENT}}}")
        windows: dict[str, list[str]] = {}
        for line in self.tmux(*server, *words, check=False).splitlines():
            window, title = line.split(" ")[:2]
            windows.setdefault(window, []).append(title)
        return list(windows.values())

    def sees(self, *windows: list[str], session: str = "bullpen-team") -> None:
        wait_until(lambda: self.panes(session) == list(windows))

    def sessions(self) -> list[str]:
        listed = self.tmux("list-sessions", "-F", "#{session_name}", check=False)
        return sorted(listed.splitlines())

    def screen(self, *where: str) -> str:
        return self.tmux("-L", "outer", "capture-pane", "-p", *where)

    def followers(self) -> list[str]:
        return [what for what in self.pen.processes().values() if " pod follow " in what]

    def leave(self) -> None:
        for name in ("outer", "default"):
            self.tmux("-L", name, "kill-server", check=False)


@pytest.fixture
def person() -> Iterator[Person]:
    with made_pen() as pen:
        found = Person(pen)
        try:
            yield found
        finally:
            found.leave()
            wait_until(lambda: not found.followers())


def members(pen: Pen, *names: str, pod: str = "team") -> None:
    for name in names:
        pen.run("cat", pod=pod, name=name)


@needs_tmux
@pytest.mark.storm
def test_a4_pane_per_member_and_new_ones_as_they_start(person: Person) -> None:
    pen = person.pen
    members(pen, "ann", "bob")
    members(pen, "eve", pod="other")
    person.types("pod", "attach", "team")
    person.sees(["ann", "bob"])
    wait_until(lambda: all(f" {name} · " in person.screen() for name in ("ann", "bob")))
    wait_until(lambda: len(person.followers()) == 1)
    members(pen, "fay", pod="other")
    members(pen, "cleo")
    person.sees(["ann", "bob", "cleo"])
    person.tmux("send-keys", "-t", "bullpen-team:.0", "hello", "Enter")
    wait_until(lambda: b"hello" in pen.log("ann"))
    assert b"hello" not in pen.log("bob")
    pen.stop("bob")
    person.sees(["ann", "cleo"])
    pen.client().post("agents", "bob", "restart")
    person.sees(["ann", "cleo", "bob"])
    person.tmux("kill-session", "-t", "=bullpen-team")
    wait_until(lambda: "CODE 0" in person.screen())
    assert all(found["running"] for found in pen.agents().values())


@pytest.mark.storm
@SLOW
@needs_tmux
def test_a4_session_ends_with_the_last_member(person: Person) -> None:
    members(person.pen, "ann", "bob")
    person.types("pod", "attach", "team")
    person.sees(["ann", "bob"])
    wait_until(lambda: len(person.followers()) == 1)
    assert person.pen.cli("pod", "stop", "team", "--force").code == 0
    wait_until(lambda: person.sessions() == [])
    wait_until(lambda: not person.followers())


@pytest.mark.storm
@SLOW
@needs_tmux
def test_a4_full_window_is_followed_by_another(person: Person) -> None:
    names = [f"m{number}" for number in range(8)]
    members(person.pen, *names)
    person.types("pod", "attach", "team", columns=80, rows=24)
    person.sees(names[:6], names[6:])
    members(person.pen, "m8")
    person.sees(names[:6], [*names[6:], "m8"])
    assert person.panes()[0] == names[:6]
    active = person.tmux("display-message", "-p", "-t", "=bullpen-team:", "#{window_index}")
    assert active.strip() == "0"  # a window that comes is not in the way


@pytest.mark.storm
@SLOW
@needs_tmux
def test_a4_second_attach_joins_and_brings_closed_panes_back(person: Person) -> None:
    members(person.pen, "ann", "bob")
    person.types("pod", "attach", "team")
    person.sees(["ann", "bob"])
    wait_until(lambda: len(person.followers()) == 1)
    person.tmux("send-keys", "-t", "bullpen-team:.0", "C-\\")  # leaves that agent
    person.sees(["bob"])
    members(person.pen, "cleo")
    person.sees(["bob", "cleo"])  # who was left is not forced upon anybody
    person.types("pod", "attach", "team")
    person.sees(["bob", "cleo", "ann"])
    wait_until(lambda: len(person.tmux("list-clients").splitlines()) == 2)
    assert person.sessions() == ["bullpen-team"]
    # What it starts looks like itself until it is executed.
    wait_until(lambda: len(person.followers()) == 1)


@pytest.mark.storm
@SLOW
@needs_tmux
def test_a4_inside_tmux_a_window_of_the_same_session(person: Person) -> None:
    members(person.pen, "ann", "bob")
    outer = ("-L", "outer")
    size = ("-x", "120", "-y", "40")
    person.tmux(*outer, "-f", "/dev/null", "new-session", "-d", *size, "-s", "mine", "-n", "shell")

    def types() -> None:
        person.tmux(*outer, "select-window", "-t", "mine:shell")
        person.tmux(*outer, "send-keys", "-t", "mine:shell", f"{BULLPEN} pod attach team", "Enter")
        wait_until(lambda: windows()[-1] == ("team", "1"))

    def windows() -> list[tuple[str, str]]:
        form = "#{window_name} #{window_active}"
        listed = person.tmux(*outer, "list-windows", "-t", "mine", "-F", form).splitlines()
        return [(line.split()[0], line.split()[1]) for line in listed]

    types()
    wait_until(lambda: person.panes("mine", *outer)[1:] == [["ann", "bob"]])
    members(person.pen, "cleo")
    wait_until(lambda: person.panes("mine", *outer)[1:] == [["ann", "bob", "cleo"]])
    types()
    assert [name for name, _ in windows()] == ["shell", "team"]
    assert person.sessions() == []  # none of its own


@pytest.mark.storm
@SLOW
@needs_tmux
def test_a4_pods_of_two_homes_do_not_meet(person: Person) -> None:
    """The same pod, the same tmux: each home has its session."""
    members(person.pen, "ann")
    person.types("pod", "attach", "team")
    person.sees(["ann"])
    place = person.pen.root.parent / "odd #{pane_id} %d 'quote"
    with made_pen(place) as other:
        members(other, "zoe", "yan")
        person.env["BULLPEN_DIR"] = str(other.root)
        try:
            person.types("pod", "attach", "team")
            wait_until(lambda: len(person.sessions()) == 2)
            first, second = person.sessions()
            assert first == "bullpen-team"
            assert re.fullmatch(r"bullpen-team-[0-9a-f]{4}", second)
            person.sees(["yan", "zoe"], session=second)
            members(other, "xia")
            person.sees(["yan", "zoe", "xia"], session=second)
            person.sees(["ann"])
        finally:
            person.env["BULLPEN_DIR"] = str(person.pen.root)
            person.leave()
            other_followers = [
                pid for pid, what in other.processes().items() if " pod follow " in what
            ]
            wait_until(lambda: not [p for p in other_followers if Path(f"/proc/{p}").exists()])


@SLOW
@needs_tmux
@pytest.mark.storm
def test_a4_new_members_are_added_after_the_hub_was_killed(person: Person) -> None:
    members(person.pen, "ann")
    person.types("pod", "attach", "team")
    person.sees(["ann"])
    wait_until(lambda: len(person.followers()) == 1)
    person.pen.kill_hub()
    members(person.pen, "bob")
    person.sees(["ann", "bob"])


@SLOW
@needs_tmux
@pytest.mark.storm
def test_a4_a_parent_and_its_children_side_by_side_and_new_ones_as_they_start(
    person: Person,
) -> None:
    grove = Grove(person.pen)
    members(person.pen, "bob")
    grove.run("lead")
    children = [grove.spawn("lead", "csv")]
    person.types("attach", "--tree", "lead")
    person.sees(["lead", *children], session="bullpen-lead")
    wait_until(lambda: len(person.followers()) == 1)
    children.append(grove.spawn("lead", "docs"))
    person.sees(["lead", *children], session="bullpen-lead")
    wait_until(lambda: all(f" {name} · " in person.screen() for name in ("lead", *children)))


@SLOW
@needs_tmux
@pytest.mark.storm
def test_a4_environment_of_an_agent_does_not_get_into_panes(person: Person) -> None:
    """A tmux that was started inside an agent has that agent's variables."""
    members(person.pen, "ann")
    person.env |= {"BULLPEN_ACTOR": "ann", "BULLPEN_TOKEN": "bullpen_of_ann"}
    person.tmux("-f", "/dev/null", "new-session", "-d", "-s", "started-inside")
    for name in ("BULLPEN_ACTOR", "BULLPEN_TOKEN"):
        del person.env[name]
    person.types("pod", "attach", "team")
    person.sees(["ann"])
    members(person.pen, "bob")
    person.sees(["ann", "bob"])


# ── without ──


def test_a4_without_tmux_it_tells_how_to_attach_one_by_one(person: Person) -> None:
    members(person.pen, "ann", "bob")
    said = person.pen.cli("pod", "attach", "team", PATH=os.devnull)
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "tmux is not installed; one by one:\n  bullpen attach ann\n  bullpen attach bob\n"
    )


@SLOW
@needs_tmux
def test_a4_without_a_terminal_or_members_it_says_so(person: Person) -> None:
    members(person.pen, "ann")
    said = person.pen.cli("pod", "attach", "team")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "error: this needs a terminal\nhint:  bullpen peek ann · bullpen logs -f ann\n"
    )
    for words in (["pod", "attach", "nope"], ["attach", "--tree", "nope"]):
        said = person.pen.cli(*words)
        assert (said.code, said.err) == (
            4,
            "error: no agent of nope is running\nhint:  bullpen list\n",
        )

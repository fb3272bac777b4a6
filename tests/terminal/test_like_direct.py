"""Attached, a program looks as it does when it is run directly: both in tmux, side by side."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.holder.conftest import python

from .conftest import Stage, Tmux, wait_for_screen

pytestmark = pytest.mark.slow

TEXT = "".join(
    f"line {number} " + ("wörld 漢字 🚀 · " if number % 3 else "plain ") * 4 + "\n"
    for number in range(200)
)


@dataclass(frozen=True)
class Program:
    """What to run, what is on its screen when it is ready, and what to do with it."""

    argv: list[str]
    ready: str
    keys: list[str]
    done: str  # on the screen after these keys
    env: dict[str, str] = field(default_factory=dict)


PROGRAMS = {
    "vim": Program(
        ["vim", "-u", "NONE", "-n", "-c", "set nocp ruler", "text"],
        "line 0",
        ["G", "ihello ", "Escape", "10k", "dd", "/line 17", "Enter"],
        "line 17",
    ),
    "less": Program(["less", "text"], "line 0", ["Space", "/line 100", "Enter"], "line 100"),
    "nano": Program(["nano", "-I", "text"], "line 0", ["Down", "hello", "C-e"], "hello"),
    "bash": Program(
        ["bash", "--norc", "-i"],
        "sh>",
        [
            *("echo one two", "Enter", "Up", "C-a", "C-k", "echo thre", "BSpace", "ee", "Left"),
            *(
                "Enter",
                "ls /etc | head -30",
                "Enter",
                "printf '\\033[1;31mred\\033[0m\\n'",
                "Enter",
            ),
        ],
        "red",
        {"PS1": "sh> "},
    ),
    "git": Program(
        ["git", "log", "--graph", "--color"], "commit 9", ["j", "j", "Space"], "commit 5"
    ),
    "python": Program(
        [shutil.which("python3") or "python3", "-q"],
        ">>>",
        [
            *("x = [n * n for n in range(10)]", "Enter", "x", "Enter", "Up", "Up", "Enter"),
            *("print('é' * 30)", "Enter"),
        ],
        "é" * 30,
    ),
}


@pytest.fixture
def place(stage: Stage) -> Path:
    """A directory with a text and a repository in it, the same for both."""
    place = stage.factory.root / "place"
    place.mkdir()
    (place / "text").write_text(TEXT)
    git = ["git", "-C", str(place), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(10):
        subprocess.run(
            [
                *git,
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                f"commit {number}\n\nwith a body\nof lines",
            ],
            check=True,
            env={**os.environ, "GIT_COMMITTER_DATE": "@1 +0000", "GIT_AUTHOR_DATE": "@1 +0000"},
        )
    return place


class Pair:
    """One program directly in a window, and held and attached in another."""

    def __init__(self, stage: Stage, tmux: Tmux, place: Path, program: Program) -> None:
        base = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HISTFILE": "/dev/null",
            "LESSHISTFILE": "-",
            "LESS": "R",
        }
        env = {**base, **program.env}
        words = [f"{key}={value}" for key, value in env.items()]
        start = ["env", "-i", "-C", str(place), *words, *program.argv]
        self.tmux, self.stage = tmux, stage
        self.direct = tmux.window(*start)
        self.wait(self.direct, lambda text: program.ready in text)
        stage.agent("amy", program.argv, env=stage.factory.env(**env), cwd=str(place))
        self.attached = self.attach()

    def attach(self, *more: str) -> str:
        """The holder makes the program repaint then; so the other one repaints, too."""
        rows, cols = self.tmux.size
        self.tmux.resize(self.direct, rows - 1, cols)
        self.tmux.resize(self.direct, rows, cols)
        return self.tmux.window(
            str(self.stage.bullpen),
            "attach",
            "amy",
            *more,
            env={"BULLPEN_DIR": str(self.stage.root)},
        )

    def keys(self, *keys: str) -> None:
        """One by one: a program that is slower than its keys looks different by that alone."""
        for key in keys:
            for pane in (self.direct, self.attached):
                self.tmux.keys(pane, key)
            self.same()

    def detach(self) -> None:
        self.tmux.keys(self.attached, "C-\\")
        self.wait(self.attached, lambda text: "[detached from amy" in text)

    def resize(self, rows: int, cols: int) -> None:
        for pane in (self.direct, self.attached):
            self.tmux.resize(pane, rows, cols)

    def look(self, pane: str) -> str:
        return self.tmux.screen(pane, colours=True) + self.tmux.ask(pane, "#{cursor_x},#{cursor_y}")

    def wait(self, pane: str, condition: Callable[[str], bool]) -> str:
        return wait_for_screen(lambda: self.tmux.screen(pane), condition)

    def same(self, containing: str = "") -> None:
        """Until both show the same, and that is on them."""
        screens = ["", ""]

        def look() -> str:
            screens[:] = [self.look(self.direct), self.look(self.attached)]
            return "\n".join(["── directly", screens[0], "── attached", screens[1]])

        wait_for_screen(look, lambda _: screens[0] == screens[1] and containing in screens[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a1_a_program_looks_the_same_as_when_run_directly(
    stage: Stage, tmux: Tmux, place: Path, name: str
) -> None:
    program = PROGRAMS[name]
    if shutil.which(program.argv[0]) is None:
        pytest.skip(f"{program.argv[0]} is not installed")
    pair = Pair(stage, tmux, place, program)
    pair.same(program.ready)
    pair.keys(*program.keys)
    pair.same(program.done)
    full_screen = tmux.ask(pair.direct, "#{alternate_on}") == "1"
    pair.detach()
    pair.attached = pair.attach()
    pair.same(program.done)
    if full_screen:  # the others leave what they wrote to the terminal to fold anew
        pair.resize(30, 100)
        pair.same(program.done)
        pair.resize(15, 50)
        pair.same()
        pair.resize(24, 80)
        pair.same(program.done)
    for flag in ("alternate_on", "keypad_flag", "keypad_cursor_flag", "cursor_flag"):
        assert tmux.ask(pair.attached, f"#{{{flag}}}") == tmux.ask(pair.direct, f"#{{{flag}}}"), (
            flag
        )
    pair.detach()
    for flag in ("alternate_on", "keypad_flag", "keypad_cursor_flag", "mouse_any_flag"):
        assert tmux.ask(pair.attached, f"#{{{flag}}}") == "0", flag


@pytest.mark.parametrize("argv", [["top", "-d", "600"], ["htop", "-d", "600"]])
def test_a1_what_never_looks_the_same_twice_has_its_whole_screen_at_once(
    stage: Stage, tmux: Tmux, place: Path, argv: list[str]
) -> None:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    pair = Pair(stage, tmux, place, Program(argv, "PID", [], ""))

    def shape(pane: str) -> tuple[int, list[bool], str]:
        """Where the table begins, which rows are empty, and the names of its columns."""
        lines = tmux.screen(pane).split("\n")
        head = next((row for row, line in enumerate(lines) if "PID" in line), -1)
        return head, [not line for line in lines[: head + 5]], lines[head][:40]

    def same() -> None:
        wait_for_screen(
            lambda: tmux.screen(pair.attached) + "── directly\n" + tmux.screen(pair.direct),
            lambda text: "PID" in text and shape(pair.attached) == shape(pair.direct),
        )

    same()
    pair.detach()
    pair.attached = pair.attach()
    same()
    pair.resize(30, 120)
    same()
    pair.detach()


def test_a1_a_shell_at_another_size_than_it_was_started_in(
    stage: Stage, tmux: Tmux, place: Path
) -> None:
    program = PROGRAMS["bash"]
    pair = Pair(stage, tmux, place, program)
    pair.same("sh>")
    pair.resize(30, 100)
    pair.keys("echo $LINES $COLUMNS", "Enter")
    pair.same("30 100")
    # A long line is edited where the new width folds it.
    pair.keys("echo " + "x" * 150, "C-a", "C-e", "BSpace", "Enter")
    pair.same("x" * 100)
    pair.detach()


@pytest.mark.parametrize("name", ["vim", "less", "bash", "python"])
def test_a2_with_a_status_row_the_program_looks_the_same_above_it(
    stage: Stage, tmux: Tmux, place: Path, name: str
) -> None:
    program = PROGRAMS[name]
    pair = Pair(stage, tmux, place, program)
    pair.same(program.ready)
    pair.detach()
    pair.attached = pair.attach("--status")
    tmux.resize(pair.direct, 23, 80)

    def lines(pane: str) -> list[str]:
        return tmux.screen(pane).split("\n")

    def is_same(_: str) -> bool:
        shown, direct = lines(pair.attached), lines(pair.direct)
        return (
            shown[:23] == direct[:23]
            and shown[23].startswith("amy · coder · csv")
            and tmux.ask(pair.attached, "#{cursor_x},#{cursor_y}")
            == tmux.ask(pair.direct, "#{cursor_x},#{cursor_y}")
        )

    def both() -> str:
        return tmux.screen(pair.attached) + "── directly\n" + tmux.screen(pair.direct)

    text = wait_for_screen(both, is_same)
    for key in program.keys:
        for pane in (pair.direct, pair.attached):
            tmux.keys(pane, key)
        text = wait_for_screen(both, is_same)
    assert program.done in text
    pair.detach()


def test_a2_the_status_row_survives_clear_in_a_real_terminal(
    stage: Stage, tmux: Tmux, place: Path
) -> None:
    pair = Pair(stage, tmux, place, PROGRAMS["bash"])
    pair.same("sh>")
    pair.detach()
    pane = pair.attach("--status")
    pair.wait(pane, lambda text: "amy · coder" in text)
    tmux.keys(pane, "seq 100; clear; echo cleared", "Enter")
    text = pair.wait(pane, lambda text: text.startswith("cleared") and "sh>" in text)
    assert text.split("\n")[23].startswith("amy · coder")
    assert tmux.ask(pane, "#{pane_title}").startswith("amy · coder")


WATCH = python(
    """
import os, tty
tty.setraw(0)
os.write(1, b"\\x1b[?1000h\\x1b[?1006h\\x1b[?2004hREADY")
while piece := os.read(0, 65536):
    os.write(1, piece.hex().encode())
"""
)


def test_a1_mouse_and_paste_by_a_real_terminal(stage: Stage, tmux: Tmux, place: Path) -> None:
    stage.agent("amy", WATCH)
    pane = tmux.window(str(stage.bullpen), "attach", "amy", env={"BULLPEN_DIR": str(stage.root)})
    wait_for_screen(lambda: tmux.screen(pane), lambda text: "READY" in text)
    assert tmux.ask(pane, "#{mouse_any_flag}#{mouse_sgr_flag}") == "11"
    tmux.run("set-buffer", "two\nlines")
    tmux.run("paste-buffer", "-p", "-t", pane)  # in brackets, if the program asked for them
    pasted = b"\x1b[200~two\rlines\x1b[201~".hex()
    wait_for_screen(lambda: tmux.screen(pane).replace("\n", ""), lambda text: pasted in text)
    tmux.keys(pane, "C-\\")
    wait_for_screen(lambda: tmux.screen(pane), lambda text: "[detached" in text)
    assert tmux.ask(pane, "#{mouse_any_flag}#{mouse_sgr_flag}") == "00"


def test_a1_what_stood_on_the_terminal_before_is_not_lost(
    stage: Stage, tmux: Tmux, place: Path
) -> None:
    stage.agent("amy", PROGRAMS["bash"].argv, env=stage.factory.env(PS1="sh> "))
    command = f"seq 1000 1010; {stage.bullpen} attach amy; exec sleep 1000"
    pane = tmux.window("bash", "-c", command, env={"BULLPEN_DIR": str(stage.root)})
    wait_for_screen(lambda: tmux.screen(pane), lambda text: text.startswith("sh>"))
    history = tmux.run("capture-pane", "-p", "-S", "-", "-t", pane).split()
    assert history[:11] == [str(number) for number in range(1000, 1011)]
    tmux.keys(pane, "C-\\")
    wait_for_screen(lambda: tmux.screen(pane), lambda text: "[detached" in text)

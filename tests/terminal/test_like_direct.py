"""Attached, a program looks as it does when it is run directly: both in tmux, side by side."""

import shutil
from pathlib import Path

import pytest

from tests.holder.programs import python
from tests.terminal.stage import Stage
from tests.terminal.tmux import STAYS, Tmux, wait_for_screen

from .pairs import PROGRAMS, Pair, Program

pytestmark = pytest.mark.slow


@pytest.mark.storm
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


@pytest.mark.storm
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


@pytest.mark.storm
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
    attach = (*STAYS, str(stage.bullpen), "attach", "amy")
    pane = tmux.window(*attach, env={"BULLPEN_DIR": str(stage.root)})
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

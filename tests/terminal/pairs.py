"""Programs run twice in tmux: directly, and held and attached; and when both look the same."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.terminal.stage import Stage
from tests.terminal.tmux import STAYS, Tmux, wait_for_screen


@dataclass(frozen=True)
class Program:
    """What to run, what is on its screen when it is ready, and what to do with it."""

    argv: list[str]
    ready: str
    keys: list[str]
    done: str  # on the screen after these keys
    env: dict[str, str] = field(default_factory=dict)
    prompt: str = ""  # where it reads the next line, if it reads lines


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
        "sh>",
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
        prompt=">>>",
    ),
}


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
        self.tmux, self.stage, self.prompt = tmux, stage, program.prompt
        self.direct = tmux.window(*start)
        self.wait(self.direct, lambda text: program.ready in text)
        stage.agent("amy", program.argv, env=stage.factory.env(**env), cwd=str(place))
        self.attached = self.attach()
        # What is typed to a program that is still starting is echoed by its terminal.
        self.wait(self.attached, lambda text: program.ready in text)

    def attach(self, *more: str) -> str:
        """The holder makes the program repaint then; so the other one repaints, too."""
        rows, cols = self.tmux.size
        self.tmux.resize(self.direct, rows - 1, cols)
        self.tmux.resize(self.direct, rows, cols)
        return self.tmux.window(
            *STAYS,
            str(self.stage.bullpen),
            "attach",
            "amy",
            *more,
            env={"BULLPEN_DIR": str(self.stage.root)},
        )

    def keys(self, *keys: str) -> None:
        """One by one: a program that is slower than its keys looks different by that alone."""
        for key in keys:
            self.press(key)
            self.same()

    def press(self, key: str) -> None:
        """In both, and until both show it. What is typed before a line was carried out is echoed
        by the terminal."""
        for pane in (self.direct, self.attached):
            self._press(pane, key)

    def _press(self, pane: str, key: str) -> None:
        before = self.look(pane)

        def shows_it(text: str) -> bool:
            return text != before and (key != "Enter" or self._is_at_prompt(text))

        self.tmux.keys(pane, key)
        wait_for_screen(lambda: self.look(pane), shows_it)

    def _is_at_prompt(self, look: str) -> bool:
        lines = look.split("\n")
        row = int(lines[-1].partition(",")[2])
        return lines[row].endswith(self.prompt)

    def detach(self) -> None:
        self.tmux.keys(self.attached, "C-\\")
        self.wait(self.attached, lambda text: "[detached from amy" in text)

    def resize(self, rows: int, cols: int) -> None:
        for pane in (self.direct, self.attached):
            self.tmux.resize(pane, rows, cols)

    def look(self, pane: str) -> str:
        screen = self.tmux.screen(pane, colours=True)
        # One colour, two ways to say it: vim's choice depends on when the terminal has answered it.
        screen = re.sub(r"(?<=[\[;])([34])8;5;([0-7])(?=[;m])", r"\g<1>\g<2>", screen)
        return screen + self.tmux.ask(pane, "#{cursor_x},#{cursor_y}")

    def wait(self, pane: str, condition: Callable[[str], bool]) -> str:
        return wait_for_screen(lambda: self.tmux.screen(pane), condition)

    def same(self, containing: str = "") -> None:
        """Until both show the same, and that is on them."""
        screens = ["", ""]

        def look() -> str:
            screens[:] = [self.look(self.direct), self.look(self.attached)]
            return "\n".join(["── directly", screens[0], "── attached", screens[1]])

        wait_for_screen(look, lambda _: screens[0] == screens[1] and containing in screens[0])

"""A person at a terminal of tmux."""

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.terminal.person import COLS, ROWS, SECONDS
from tests.waiting import wait_until

# Before a command whose last words are waited for: of a window whose program has ended tmux may
# miss them (3.3a: it asks whether there are any while the kernel has not handed them on).
STAYS = ("sh", "-c", '"$@"; exec sleep 1000', "sh")


class Tmux:
    """A private server with windows of one size."""

    def __init__(
        self, place: Path, env: dict[str, str], rows: int = ROWS, cols: int = COLS
    ) -> None:
        self._command = ["tmux", "-S", str(place), "-f", "/dev/null", "-u"]
        self._env = {key: value for key, value in env.items() if not key.startswith("TMUX")}
        self.size = (rows, cols)
        self.run("new-session", "-d", "-x", str(cols), "-y", str(rows), "-s", "s", "sleep 1000")
        self.run("set-option", "-g", "default-terminal", "xterm-256color")
        self.run("set-option", "-g", "status", "off")
        self.run("set-option", "-g", "escape-time", "5")
        self.run("set-option", "-g", "remain-on-exit", "on")
        self.run("set-option", "-g", "default-size", f"{cols}x{rows}")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words],
            env=self._env,
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        return done.stdout.decode()

    def window(self, *argv: str, env: dict[str, str] | None = None) -> str:
        """Run it in a new window; the pane's id."""
        variables = [f"-e{key}={value}" for key, value in (env or {}).items()]
        pane = self.run("new-window", "-d", "-P", "-F", "#{pane_id}", *variables, "--", *argv)
        rows, cols = self.size
        self.resize(pane.strip(), rows, cols)
        return pane.strip()

    def resize(self, pane: str, rows: int, cols: int) -> None:
        """Also waits for tmux, which tells the program only after a while."""
        self.run("resize-window", "-t", pane, "-x", str(cols), "-y", str(rows))
        # Not as our own, which a leader of a session would make it.
        terminal = os.open(self.ask(pane, "#{pane_tty}"), os.O_RDONLY | os.O_NOCTTY)
        try:
            wait_until(lambda: os.get_terminal_size(terminal) == (cols, rows))
        finally:
            os.close(terminal)

    def keys(self, pane: str, *keys: str) -> None:
        self.run("send-keys", "-t", pane, *keys)

    def screen(self, pane: str, colours: bool = False) -> str:
        return self.run("capture-pane", "-p", *(["-e"] if colours else []), "-t", pane)

    def ask(self, pane: str, what: str) -> str:
        return self.run("display-message", "-p", "-t", pane, what).strip()

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("kill-server")


def wait_for_screen(look: Callable[[], str], condition: Callable[[str], bool]) -> str:
    """Until the screen is so; it is in the message if not."""
    last = ""

    def check() -> bool:
        nonlocal last
        last = look()
        return condition(last)

    try:
        wait_until(check, SECONDS)
    except AssertionError as error:
        raise AssertionError(f"never so; at last:\n{last}") from error
    return last

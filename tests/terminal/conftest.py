"""A home with real holders, and a person at a terminal: a bare pseudo-terminal, or tmux."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BULLPEN, wait_until
from tests.holder.conftest import Factory, Holder, bare_factory, factory

__all__ = ["bare_factory", "factory"]

SECONDS = 60.0
# A session of its own, whose terminal is its standard input.
TAKE_TERMINAL = ["setsid", "--ctty"]
ROWS, COLS = 24, 80
TEXT = "".join(
    f"line {number} " + ("wörld 漢字 🚀 · " if number % 3 else "plain ") * 4 + "\n"
    for number in range(200)
)


class Stage:
    """A home, and the agents in it."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.root = factory.root / "home"
        for name in ("sessions", "sockets"):
            (self.root / name).mkdir(parents=True, mode=0o700)
        (self.root / ".bullpen-dir.txt").write_text("v0.1.0\n")
        self.people: list[Person] = []
        self.bullpen = BULLPEN

    def fields(self, name: str) -> dict[str, Any]:
        """What a holder must be told so that it is this agent's."""
        session = self.root / "sessions" / name
        session.mkdir()
        record = {"name": name, "role": "coder", "pod": "csv"}
        (session / "session.json").write_text(json.dumps(record))
        socket = self.root / "sockets" / f"agent.{name}.sock"
        return {"name": name, "socket": str(socket), "session": str(session)}

    def agent(self, name: str, argv: list[str], **fields: Any) -> Holder:
        return self.factory.hold(argv, **self.fields(name), **fields)

    def env(self, **more: str) -> dict[str, str]:
        return {**os.environ, "BULLPEN_DIR": str(self.root), "TERM": "xterm-256color", **more}

    def person(
        self,
        *words: str,
        argv: list[str] | None = None,
        size: tuple[int, int] = (ROWS, COLS),
        at: "Person | None" = None,
        **env: str,
    ) -> "Person":
        """Somebody who runs `bullpen` with these words (or `argv`) at a terminal."""
        command = argv or [str(self.bullpen), *words]
        self.people.append(Person(command, self.env(**env), size, at))
        return self.people[-1]

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
        """`bullpen` with these words, and no terminal."""
        return subprocess.run(
            [BULLPEN, *words],
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def close(self) -> None:
        for person in self.people:
            person.close()


@pytest.fixture
def stage(factory: Factory) -> Iterator[Stage]:
    stage = Stage(factory)
    yield stage
    stage.close()


class Person:
    """A command on a pseudo-terminal of its own; `seen` is all that it wrote there."""

    def __init__(
        self, argv: list[str], env: dict[str, str], size: tuple[int, int], at: "Person | None"
    ) -> None:
        """`at`: at the terminal of somebody whose command has ended."""
        self.terminal, self._inner = (at.terminal, at._inner) if at else pty.openpty()
        self.before = termios.tcgetattr(self._inner)
        self.resize(*size)
        self.process = subprocess.Popen(
            [*TAKE_TERMINAL, *argv],
            env=env,
            stdin=self._inner,
            stdout=self._inner,
            stderr=self._inner,
        )
        self.seen = b""
        self.late = b""  # what it sends just before it answers

    def resize(self, rows: int, cols: int) -> None:
        size = struct.pack("HHHH", rows, cols, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def type(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def pump(self, seconds: float = 0.0) -> bool:
        """Read what is there; answer as a terminal does."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.terminal, 1 << 16)
        except OSError:
            return False
        self.seen += piece
        if b"\x1b[5n" in piece:
            self.type(self.late + b"\x1b[0n")
        return True

    def wait_for(self, *wanted: bytes, since: int = 0) -> bytes:
        """Until all of these have been seen, after so many bytes."""
        deadline = time.monotonic() + SECONDS
        while not all(text in self.seen[since:] or text in self.untitled(since) for text in wanted):
            assert time.monotonic() < deadline, f"no {wanted} in {self.seen[since:][-2000:]!r}"
            self.pump(0.05)
        return self.seen[since:]

    def untitled(self, since: int = 0) -> bytes:
        """What was seen, without our titles: they come anywhere."""
        return re.sub(rb"\x1b\]2;[^\x07]*\x07", b"", self.seen[since:])

    def wait(self, seconds: float = SECONDS) -> int:
        """Until it has ended; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still there: {self.seen[-2000:]!r}"
            self.pump(0.02)
        while self.pump():
            pass
        return self.process.returncode

    def detach(self) -> bytes:
        """Leave with the usual key; what was written from then on."""
        since = len(self.seen)
        self.type(b"\x1c")
        assert self.wait() == 0
        return self.seen[since:]

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._inner)

    @property
    def is_raw(self) -> bool:
        return not self.settings[3] & termios.ICANON

    def hang_up(self) -> None:
        """The window is closed."""
        for descriptor in (self.terminal, self._inner):
            os.close(descriptor)
        self.terminal = self._inner = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.terminal, self._inner):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def modes_left_on(output: bytes) -> set[bytes]:
    """Private modes that were turned on and not off again, by order of appearance."""
    on: set[bytes] = set()
    for numbers, switch in re.findall(rb"\x1b\[\?([0-9;]+)([hl])", output):
        for number in numbers.split(b";"):
            (on.add if switch == b"h" else on.discard)(number)
    return on - {b"25", b"7"}


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
        with open(self.ask(pane, "#{pane_tty}")) as terminal:  # noqa: PTH123
            wait_until(lambda: os.get_terminal_size(terminal.fileno()) == (cols, rows))

    def keys(self, pane: str, *keys: str) -> None:
        self.run("send-keys", "-t", pane, *keys)

    def screen(self, pane: str, colours: bool = False) -> str:
        return self.run("capture-pane", "-p", *(["-e"] if colours else []), "-t", pane)

    def ask(self, pane: str, what: str) -> str:
        return self.run("display-message", "-p", "-t", pane, what).strip()

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("kill-server")


@pytest.fixture
def tmux(stage: Stage) -> Iterator[Tmux]:
    server = Tmux(stage.factory.root / "tmux", stage.env())
    yield server
    server.close()


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

"""Rows 1a, 1b and 1c: how long a command takes to start, against a bare interpreter."""

import compileall
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import bullpen
from bench.table import Row, interleaved, timed
from bullpen.client.hook_line import hook_line

BARE = [os.path.realpath(sys.executable), "-S", "-E", "-c", "pass"]
BULLPEN = str(Path(sys.executable).with_name("bullpen"))
PACKAGE = Path(bullpen.__file__).parent
EVENT = b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "text": "%s"}' % (b"x" * 1000)

# Runs beside the home, as the hub does: a process of its own, ready when it says so.
STAND_IN = """
import os, socket, sys
from bullpen import __version__
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(64)
print("ready", flush=True)
body = b"amy  coder  idle  main  41.2k  $0.38  12s\\n" * 30
head = "HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\nbullpen-version: %s\\r\\n\\r\\n"
while True:
    connection, _ = listener.accept()
    request = b""
    while b"\\r\\n\\r\\n" not in request:
        request += connection.recv(65536)
    connection.sendall((head % (len(body), __version__)).encode() + body)
    connection.close()
"""

Hub = Callable[[Path], AbstractContextManager[object]]


@contextlib.contextmanager
def stand_in(home: Path) -> Iterator[None]:
    """Answers at once, so that what is measured is the command."""
    words = [sys.executable, "-c", STAND_IN, str(home / "sockets" / "hub.sock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            yield
        finally:
            server.kill()


def rows(rounds: int = 15, hub: Hub = stand_in) -> list[Row]:
    """The hot verbs with a hub running (`hub` starts it for a home), and two others."""
    # With PYTHONDONTWRITEBYTECODE set, every start would compile what changed last.
    compileall.compile_dir(PACKAGE, quiet=2)
    with tempfile.TemporaryDirectory(prefix="bullpen-bench-", dir="/tmp") as scratch:
        home = Path(scratch, "home")
        subprocess.run([BULLPEN, "init", home], check=True, stdout=subprocess.DEVNULL)
        with hub(home):
            return [*_hot_rows(home, rounds * 4), *_other_rows(home, rounds)]


def _hot_rows(home: Path, rounds: int) -> list[Row]:
    line = hook_line(sys.executable, str(PACKAGE.parent), "amy")
    commands = {
        ("1a", "bullpen hook", 1.5): [BULLPEN, "hook"],
        ("1a", "hook, as the generated line", 1.15): line,
        ("1b", "bullpen list", 1.6): [BULLPEN, "list"],
    }
    env = {"BULLPEN_ACTOR": "amy"}
    works = [partial(_start, home, words, env) for words in (BARE, *commands.values())]
    bare, *ours = interleaved(rounds, *works)
    return [
        Row(number, what, time, bare, goal)
        for (number, what, goal), time in zip(commands, ours, strict=True)
    ]


def _other_rows(home: Path, rounds: int) -> list[Row]:
    verbs = [["version"], ["role", "list"]]
    works = [partial(_start, home, words, {}) for words in (BARE, *([BULLPEN, *v] for v in verbs))]
    bare, *ours = interleaved(rounds, *works)
    return [
        Row("1c", f"bullpen {' '.join(verb)}", time, bare, goal=12)
        for verb, time in zip(verbs, ours, strict=True)
    ]


def _start(home: Path, words: list[str], env: dict[str, str]) -> float:
    return timed(
        partial(
            subprocess.run,
            words,
            env={**os.environ, "BULLPEN_DIR": str(home), **env},
            input=EVENT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    )

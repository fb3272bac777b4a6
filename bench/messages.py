"""Rows 11 and 12: a message to an idle agent until it answers, beside tmux; fifty at once.

The agent takes a line, works for 50 ms, and echoes it. Row 12's peer took 46 s for its fifty;
it is not run here, so the row says what the goal says: a tenth of that.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.hub import hub_home, run
from bench.table import Row, interleaved
from bullpen.client.hub import HubClient
from bullpen.paths import Home

WORK_SECONDS = 0.05
PEER_SECONDS = 46.0
ROUNDS = 15
FIFTY = 50
ECHO = f"""
import sys, time
for line in sys.stdin:
    time.sleep({WORK_SECONDS})
    print("HEARD", line.split()[-1], flush=True)
"""
SECONDS = 30.0


def rows() -> list[Row]:
    """Both."""
    with hub_home() as (home, env):
        role = home / "roles" / "echo.yaml"
        program = home / "echo.py"
        program.write_text(ECHO)
        role.write_text(
            "name: echo\nagent_type: command\ndeliver: lines\n"
            f"command: [{sys.executable}, {program}]\n"
        )
        run(env, "run", "--role", "echo", "--name", "amy", "--detach")
        log = home / "sessions/amy/output.log"
        found = [_fifty(env, log)]
        if shutil.which("tmux"):
            found.insert(0, _one(home, log, program))
        return found


def _one(home: Path, log: Path, program: Path) -> Row:
    socket, pane = str(home / "tmux"), home / "pane"
    tmux = ["tmux", "-S", socket]
    subprocess.run(
        [*tmux, "new-session", "-d", f"{sys.executable} {program} | tee {pane}"], check=True
    )
    client, number = HubClient(Home(home), start=False), 0

    def ours() -> float:
        nonlocal number
        number += 1
        text = f"a{number}"
        return _timed(
            lambda: client.post("agents", "amy", "messages", body={"text": text}), log, text
        )

    def theirs() -> float:
        nonlocal number
        number += 1
        words = [*tmux, "send-keys", f"b{number}", "Enter"]
        return _timed(lambda: subprocess.run(words, check=True), pane, f"b{number}")

    try:
        theirs()
        ours()
        mine, peer = interleaved(ROUNDS, ours, theirs)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    return Row("11", "message to echo, beside tmux send-keys", mine, peer, 90 / 80)


def _fifty(env: dict[str, str], log: Path) -> Row:
    start = time.perf_counter()
    for number in range(FIFTY):
        run(env, "send", "amy", f"c{number}.")
    for number in range(FIFTY):
        _wait(log, f"HEARD c{number}.")
    return Row(
        "12",
        "50 messages, all received (peer: 46 s)",
        time.perf_counter() - start,
        PEER_SECONDS,
        0.1,
    )


def _timed(send: Callable[[], object], file: Path, text: str) -> float:
    start = time.perf_counter()
    send()
    _wait(file, f"HEARD {text}")
    return time.perf_counter() - start


def _wait(file: Path, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not file.exists() or text.encode() not in file.read_bytes():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text} is not in {file}")
        time.sleep(0.001)

"""Rows 11 and 12: a message to an idle agent until it answers, beside tmux; fifty at once.

The agent takes a line, works for 50 ms, and echoes it. Row 12's peer took 46 s for its fifty;
it is not run here, so the row says what the goal says: a tenth of that.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.hubs import hub_home, is_in, launch_listener, run
from bench.keepers import need_tmux
from bench.table import Row, interleaved, wait_until
from bullpen.client.hub import HubClient
from bullpen.paths import Home

PEER_SECONDS = 46.0 / 50
ECHO = """
import sys, time
for line in sys.stdin:
    time.sleep(0.05)
    print("HEARD", line.split()[-1], flush=True)
"""


def rows(short: bool) -> Iterator[Row]:
    """Both."""
    rounds, count = (1, 2) if short else (15, 50)
    with hub_home() as (home, env):
        program = home.root / "echo.py"
        program.write_text(ECHO)
        log = launch_listener(home, env, "amy", [sys.executable, str(program)])
        seconds = _all_received(env, log, count)
        peer = PEER_SECONDS * count
        yield Row("12", f"{count} messages, all received (peer: {peer:.0f} s)", seconds, peer, 0.1)
        need_tmux()
        with _tmux(home, program) as (tmux, pane):
            client, number = HubClient(home, start=False), 0

            def ours() -> float:
                nonlocal number
                number += 1
                body = {"text": f"a{number}."}
                return _until_heard(
                    lambda: client.post("agents", "amy", "messages", body=body), log, body["text"]
                )

            def theirs() -> float:
                nonlocal number
                number += 1
                words = [*tmux, "send-keys", f"b{number}.", "Enter"]
                return _until_heard(lambda: subprocess.run(words, check=True), pane, f"b{number}.")

            theirs()
            ours()
            mine, other = interleaved(rounds, ours, theirs)
    yield Row("11", "message to echo, against tmux send-keys", mine, other, 90 / 80)


@contextmanager
def _tmux(home: Home, program: Path) -> Iterator[tuple[list[str], Path]]:
    """The same program in a pane, and the file of what it says."""
    pane = home.root / "pane"
    tmux = ["tmux", "-S", str(home.root / "tmux"), "-f", "/dev/null"]
    words = f"{sys.executable} {program} | tee {pane}"
    try:
        subprocess.run([*tmux, "new-session", "-d", words], check=True)
        yield tmux, pane
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


def _all_received(env: dict[str, str], log: Path, count: int) -> float:
    start = time.perf_counter()
    for number in range(count):
        run(env, "send", "amy", f"c{number}.")
    for number in range(count):
        _wait_for(log, f"c{number}.")
    return time.perf_counter() - start


def _until_heard(send: Callable[[], object], file: Path, text: str) -> float:
    start = time.perf_counter()
    send()
    _wait_for(file, text)
    return time.perf_counter() - start


def _wait_for(file: Path, text: str) -> None:
    wait_until(lambda: is_in(file, f"HEARD {text}"), 0.001)

"""Row 10: a new agent, until it has taken a message. Rows 11 and 12: a message to an idle agent
until it answers, beside tmux; fifty at once.

The agent takes a line, works for 50 ms, and echoes it. The peer of rows 10 and 12 (CLI Agent
Orchestrator 2.5.4, with its mock agent) took 3.84 s for an agent and 46 s for fifty messages; it
is run only with `--peers`, so the rows say what the goals say: a twentieth and a tenth of that.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.hubs import hub_home, is_in, launch_listener, run
from bench.keepers import need_tmux
from bench.table import Row, interleaved, wait_until
from bullpen.client import Hub, agents
from bullpen.client.messages import send_message
from bullpen.client.shell import Shell
from bullpen.home.paths import Home

PEER_SECONDS = 46.0 / 50
PEER_CREATE_SECONDS = 3.84
WORK_SECONDS = 0.05
ECHO = f"""
import sys, time
for line in sys.stdin:
    time.sleep({WORK_SECONDS})
    print("HEARD", line.split()[-1], flush=True)
"""


def rows(short: bool) -> Iterator[Row]:
    """All three."""
    rounds, count = (1, 2) if short else (15, 50)
    with hub_home() as (home, env):
        program = home.root / "echo.py"
        program.write_text(ECHO)
        log = launch_listener(home, env, "amy", [sys.executable, str(program)])
        hub = Hub(home, start=False)
        created = median(create(hub, home, f"new{number}") for number in range(rounds))
        what = f"create an agent (peer: {PEER_CREATE_SECONDS:.1f} s)"
        yield Row("10", what, created, PEER_CREATE_SECONDS, 1 / 20)
        seconds = all_received(env, log, count)
        peer = PEER_SECONDS * count
        yield Row("12", f"{count} messages, all received (peer: {peer:.0f} s)", seconds, peer, 0.1)
        need_tmux()
        with _tmux(home, program) as (tmux, pane):
            number = 0

            def ours() -> float:
                nonlocal number
                number += 1
                text = f"a{number}."
                call = send_message("amy", text).unchecked()
                return until_heard(lambda: hub.do(call), log, text)

            def theirs() -> float:
                nonlocal number
                number += 1
                words = [*tmux, "send-keys", f"b{number}.", "Enter"]
                return until_heard(lambda: subprocess.run(words, check=True), pane, f"b{number}.")

            theirs()
            ours()
            mine, other = interleaved(rounds, ours, theirs)
    yield Row("11", "message to echo, against tmux send-keys", mine, other, 90 / 80)


def create(hub: Hub, home: Home, name: str) -> float:
    """Until it has taken a message; without the 50 ms that it then works. Over the API, as the
    peer was asked."""
    shell = Shell(cwd="/", env={"PATH": os.environ["PATH"]})
    start = time.perf_counter()
    hub.do(agents.start_agent(shell, role="listener", name=name).unchecked())
    hub.do(send_message(name, f"{name}.").unchecked())
    wait_for(home.session(name) / "output.log", f"{name}.")
    return time.perf_counter() - start - WORK_SECONDS


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


def all_received(env: dict[str, str], log: Path, count: int) -> float:
    """Seconds that so many messages take, sent one after the other, until all are heard."""
    start = time.perf_counter()
    for number in range(count):
        run(env, "send", "amy", f"c{number}.")
    for number in range(count):
        wait_for(log, f"c{number}.")
    return time.perf_counter() - start


def until_heard(send: Callable[[], object], file: Path, text: str) -> float:
    """Seconds from before it is sent until its echo."""
    start = time.perf_counter()
    send()
    wait_for(file, text)
    return time.perf_counter() - start


def wait_for(file: Path, text: str) -> None:
    """The echo in what an agent says."""
    wait_until(lambda: is_in(file, f"HEARD {text}"), 0.001)

"""Rows 10 to 14 beside the peer itself, in one run: only with `--peers`."""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from bench.cao import Cao, server
from bench.hubs import hub_file, hub_home, is_in, launch, launch_listener
from bench.keepers import need_tmux
from bench.messages import ECHO, WORK_SECONDS, all_received, create, until_heard, wait_for
from bench.processes import cpu_seconds
from bench.restart import measured
from bench.table import Row, interleaved, wait_until
from bullpen.client import Hub
from bullpen.client.messages import send_message

BACK_SECONDS = 30.0  # a message that has not come by then does not come


def rows(short: bool) -> Iterator[Row]:
    """The agents of both take a line, work for 50 ms, and echo it."""
    rounds, messages, agents, idle_seconds = (1, 2, 2, 1.0) if short else (3, 50, 30, 20.0)
    need_tmux()
    numbers = count()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        server(Path(scratch, "cao")) as peer,
        hub_home() as (home, env),
    ):
        program = home.root / "echo.py"
        program.write_text(ECHO)
        log = launch_listener(home, env, "amy", [sys.executable, str(program)])
        hub = Hub(home, start=False)

        ours, theirs = interleaved(
            rounds,
            lambda: create(hub, home, f"new{next(numbers)}"),
            lambda: _create(peer, f"new{next(numbers)}"),
        )
        yield Row("10", "create an agent, beside the peer", ours, theirs, 1 / 20)

        agent = peer.create("echo")

        def send_ours() -> float:
            text = f"a{next(numbers)}."
            call = send_message("amy", text).unchecked()
            return until_heard(lambda: hub.do(call), log, text)

        def send_theirs() -> float:
            text = f"b{next(numbers)}."
            return until_heard(lambda: peer.send(agent, text), peer.heard, text)

        ours, theirs = interleaved(rounds, send_ours, send_theirs)
        yield Row("11", "message to echo, beside the peer", ours, theirs, None)

        ours, theirs = all_received(env, log, messages), _all_received(peer, agent, messages)
        yield Row("12", f"{messages} messages, all received, beside the peer", ours, theirs, 0.1)

        launch(home, agents - 1 - rounds, at_once=4)
        others = peer.create_all([f"more{number}" for number in range(agents - 1 - rounds)])
        pids = [int(hub_file(home)["pid"]), peer.process.pid]
        before = [cpu_seconds(pid) for pid in pids]
        threading.Event().wait(idle_seconds)
        used = [cpu_seconds(pid) - old for pid, old in zip(pids, before, strict=True)]
        shares = [seconds / idle_seconds * 100 for seconds in used]
        yield Row("13", f"idle CPU, {agents} agents, beside the peer", *shares, None, "%")

        yield from _restart(peer, [agent, *others])


def _restart(peer: Cao, agents: list[str]) -> Iterator[Row]:
    """The peer's server is killed when a message has been taken, and started again."""
    listeners = len(agents[:5])
    measured_ours = measured(len(agents) - listeners, listeners)
    before = [peer.state(agent) for agent in agents]
    for agent in agents[:listeners]:
        peer.send(agent, f"d{agent}.")
    peer.kill()
    began = time.monotonic()
    peer.start()
    with suppress(TimeoutError):
        wait_until(
            lambda: all(is_in(peer.heard, f"HEARD d{agent}.") for agent in agents[:listeners]),
            0.01,
            BACK_SECONDS,
        )
    theirs = time.monotonic() - began
    what = f"kill -9 to messages, {len(agents)} agents, beside the peer"
    yield Row("14", what, measured_ours[0], theirs, None)
    wrong = sum(peer.state(agent) != old for agent, old in zip(agents, before, strict=True))
    yield Row("14", "states that are wrong, beside the peer", measured_ours[1], wrong, None, "")


def _create(peer: Cao, name: str) -> float:
    """As ours: until it has taken a message, without the 50 ms that it then works."""
    start = time.perf_counter()
    peer.send(peer.create(name), f"{name}.")
    wait_for(peer.heard, f"{name}.")
    return time.perf_counter() - start - WORK_SECONDS


def _all_received(peer: Cao, agent: str, messages: int) -> float:
    start = time.perf_counter()
    for number in range(messages):
        peer.send(agent, f"c{number}.")
    for number in range(messages):
        wait_for(peer.heard, f"c{number}.")
    return time.perf_counter() - start

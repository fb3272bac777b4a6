"""Row 14: the hub is killed; the next one knows all states and delivers what waits."""

import json
import os
import signal
import socket
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress

from bench.hubs import LISTENER, hub_file, hub_home, is_in, launch, launch_listener, run
from bench.table import Row, wait_until
from bullpen.client import Hub
from bullpen.client.messages import send_message
from bullpen.home.paths import Home

GOAL_SECONDS = 2.0
MOST_TRIES = 20
SENT = "SELECT recipient FROM messages WHERE sent IS NOT NULL"


def rows(short: bool) -> Iterator[Row]:
    """Seconds from the kill; messages wait because their agents' holders stood still."""
    agents, listeners = (1, 1) if short else (25, 5)
    seconds, wrong = measured(agents, listeners)
    all_agents = agents + listeners
    what = f"kill -9 to states and messages, {all_agents} agents (of 2 s)"
    yield Row("14", what, seconds, GOAL_SECONDS, 1.0)
    yield Row("14", "states that are wrong after it", wrong, all_agents, 0.0, "")


def measured(agents: int, listeners: int) -> tuple[float, int]:
    """Seconds from the restart until all states and messages are there, and wrong states."""
    tries = (_try(agents, listeners) for _ in range(MOST_TRIES))
    return next(found for found in tries if found is not None)


def _try(agents: int, listeners: int) -> tuple[float, int] | None:
    """A line that had been recorded as sent and was not typed yet is never typed again, by design;
    None if the kill left no other one."""
    with hub_home() as (home, env):
        launch(home, agents, at_once=4)
        names = [f"listener-{number}" for number in range(listeners)]
        logs = [launch_listener(home, env, name, ["sh", "-c", LISTENER]) for name in names]
        expected = _states(env)
        holders = [_holder(home, name) for name in names]
        for name, holder in zip(names, holders, strict=True):
            os.kill(holder, signal.SIGSTOP)
            Hub(home).do(send_message(name, f"for-{name}.").unchecked())
        assert not any(is_in(log, "HEARD") for log in logs)
        killed = int(hub_file(home)["pid"])
        os.kill(killed, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(killed, 0)
        sent = _sent_to(home)
        for holder in holders:
            os.kill(holder, signal.SIGCONT)
        waited_for = [log for name, log in zip(names, logs, strict=True) if name not in sent]
        if not waited_for:
            return None
        began = time.monotonic()
        run(env, "hub", "start")
        after = _states(env)
        wait_until(lambda: all(is_in(log, "HEARD for-") for log in waited_for), 0.002)
        seconds = time.monotonic() - began
    wrong = sum(after.get(name) != state for name, state in expected.items())
    return seconds, wrong


def _sent_to(home: Home) -> set[str]:
    with closing(sqlite3.connect(home.root / "state.db")) as database:
        return {row[0] for row in database.execute(SENT)}


def _states(env: dict[str, str]) -> dict[str, str]:
    found = json.loads(run(env, "list", "--json"))["agents"]
    return {agent["name"]: agent["words"] for agent in found}


def _holder(home: Home, name: str) -> int:
    """The process that listens at the agent's socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(home.socket(name)))
        found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])

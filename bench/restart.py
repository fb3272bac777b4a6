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
from bullpen.client.hub import HubClient
from bullpen.paths import Home

GOAL_SECONDS = 2.0
MOST_TRIES = 20


def rows(short: bool) -> Iterator[Row]:
    """Seconds from the kill; messages wait because their agents' holders stood still."""
    agents, listeners = (1, 1) if short else (25, 5)
    tries = (_measured(agents, listeners) for _ in range(MOST_TRIES))
    seconds, wrong, all_agents = next(found for found in tries if found is not None)
    what = f"kill -9 to states and messages, {all_agents} agents (of 2 s)"
    yield Row("14", what, seconds, GOAL_SECONDS, 1.0)
    yield Row("14", "states that are wrong after it", wrong, all_agents, 0.0, "")


def _measured(agents: int, listeners: int) -> tuple[float, int, int] | None:
    """Seconds, wrong states, all states. None: the kill hit the moment in which a line had been
    recorded as sent and was not typed yet; such a line is never typed again, by design."""
    with hub_home() as (home, env):
        launch(home, agents, at_once=4)
        names = [f"listener-{number}" for number in range(listeners)]
        logs = [launch_listener(home, env, name, ["sh", "-c", LISTENER]) for name in names]
        expected = _states(env)
        holders = [_holder(home, name) for name in names]
        for name, holder in zip(names, holders, strict=True):
            os.kill(holder, signal.SIGSTOP)
            HubClient(home).post("agents", name, "messages", body={"text": f"for-{name}."})
        assert not any(is_in(log, "HEARD") for log in logs)
        killed = int(hub_file(home)["pid"])
        os.kill(killed, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(killed, 0)
        is_hit = _any_sent(home)
        for holder in holders:
            os.kill(holder, signal.SIGCONT)
        if is_hit:
            return None
        began = time.monotonic()
        run(env, "hub", "start")
        after = _states(env)
        wait_until(lambda: all(is_in(log, "HEARD for-") for log in logs), 0.002)
        seconds = time.monotonic() - began
    wrong = sum(after.get(name) != state for name, state in expected.items())
    return seconds, wrong, len(expected)


def _any_sent(home: Home) -> bool:
    with closing(sqlite3.connect(home.root / "state.db")) as database:
        rows = database.execute("SELECT COUNT(*) FROM messages WHERE sent IS NOT NULL")
        return bool(rows.fetchone()[0])


def _states(env: dict[str, str]) -> dict[str, str]:
    found = json.loads(run(env, "list", "--json"))["agents"]
    return {agent["name"]: agent["words"] for agent in found}


def _holder(home: Home, name: str) -> int:
    """The process that listens at the agent's socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(home.socket(name)))
        found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])

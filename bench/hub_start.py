"""Row s: the processor time that a hub takes to start in an empty home, and what a start after a
kill takes with many agents beside a few."""

import json
import os
import signal
import statistics
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from bench.hubs import hub_file, hub_home, launch, run
from bench.table import Row, interleaved, timed
from bullpen.home.paths import Home

GOAL_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


def rows(short: bool) -> Iterator[Row]:
    """All agents are right in the list when the clock stops."""
    starts, few, many, rounds = (1, 1, 3, 1) if short else (7, 10, 500, 3)
    seconds = statistics.median(_start_seconds() for _ in range(starts))
    yield Row("s", "start of a hub, CPU (of 0.5 s)", seconds, GOAL_SECONDS, 1.0)
    with hub_home() as small, hub_home() as large:
        for (home, _), count in ((small, few), (large, many)):
            launch(home, count, at_once=4)
        smaller, larger = interleaved(
            rounds, partial(_back_seconds, *small), partial(_back_seconds, *large)
        )
    yield Row("s", f"kill -9 to list: {many} agents beside {few}", larger, smaller, 2.0)


def _start_seconds() -> float:
    """Until it has answered."""
    with hub_home() as (home, _):
        stat = Path(f"/proc/{hub_file(home)['pid']}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _back_seconds(home: Home, env: dict[str, str]) -> float:
    before, pid = _states(env), int(hub_file(home)["pid"])
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    after: list[str] = []
    seconds = timed(lambda: after.extend(_states(env)))  # it starts the hub
    if after != before:
        raise RuntimeError(f"the list has changed: {before} before, {after} after")
    return seconds


def _states(env: dict[str, str]) -> list[str]:
    agents = json.loads(run(env, "list", "--json"))["agents"]
    return [f"{agent['name']} {agent['words']}" for agent in agents]

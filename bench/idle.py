"""Row 13: what a hub with agents uses when nothing happens."""

import threading
import time
from collections.abc import Iterator

from bench.hubs import hub_file, hub_home, launch
from bench.processes import cpu_seconds
from bench.table import Row


def rows(short: bool) -> Iterator[Row]:
    """Per cent of a core, which is 100 %; the goal is 0.1 %."""
    agents, seconds = (2, 1.0) if short else (30, 20.0)
    with hub_home() as (home, _):
        launch(home, agents, at_once=4)
        pid = int(hub_file(home)["pid"])
        before, began = cpu_seconds(pid), time.monotonic()
        threading.Event().wait(seconds)
        share = (cpu_seconds(pid) - before) / (time.monotonic() - began) * 100
    yield Row("13", f"idle CPU of the hub, {agents} agents (of 0.1 %)", share, 0.1, 1.0, "%")

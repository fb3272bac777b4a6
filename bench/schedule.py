"""Row 24: what a scheduler with a thousand entries uses while none of them is due."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from bench.hubs import hub_home, run
from bench.processes import exact_cpu_seconds, pss
from bench.table import Row, wait_until
from bullpen.cli.directors import find_running
from bullpen.home.paths import Home

NAME = "nightly"
MOST_CPU, MOST_MB = 0.2, 60.0  # per cent of a core
FREE_HOURS = 20  # so many from now on have entries, but not the first two
REST_SECONDS = 3.0


def rows(short: bool) -> Iterator[Row]:
    """Its own process: the CPU of a while, and its memory after that, without its part of what
    it shares with its supervisor and the hub."""
    count, seconds = 1000, 6.0 if short else 60.0
    with _scheduler(count) as pid:
        before, began = exact_cpu_seconds(pid), time.monotonic()
        threading.Event().wait(seconds)
        share = (exact_cpu_seconds(pid) - before) / (time.monotonic() - began) * 100
        what = f"{count:,} entries of a schedule"
        yield Row("24", f"idle CPU, {what} (of {MOST_CPU} %)", share, MOST_CPU, 1.0, "%")
        yield Row("24", f"PSS, {what} (of {MOST_MB:.0f} MB)", pss(pid), MOST_MB, 1.0, "MB")


@contextmanager
def _scheduler(count: int) -> Iterator[int]:
    """The pid of one that has looked at all its entries and come to rest."""
    with hub_home() as (home, env):
        fields = {"type": "scheduler", "schedule": [_entry(number) for number in range(count)]}
        home.directors.mkdir(exist_ok=True)
        (home.directors / f"{NAME}.yaml").write_text(json.dumps(fields))
        run(env, "director", "start", NAME)
        try:
            wait_until(lambda: _tracked(home) == count, 0.05)
            pid = _pid(home)
            _settle(pid)
            yield pid
        finally:
            run(env, "director", "stop", NAME)


def _entry(number: int) -> dict[str, str]:
    hour = (datetime.now(UTC).hour + 2 + number % FREE_HOURS) % 24
    cron = f"{number % 60} {hour} * * *"
    return {"name": f"entry-{number}", "cron": cron, "prompt": "x", "timezone": "UTC"}


def _tracked(home: Home) -> int:
    """How many entries are in its memory."""
    file = home.directors / NAME / "memory.json"
    return len(json.loads(file.read_text())["memory"]["tracked"]) if file.exists() else 0


def _pid(home: Home) -> int:
    running = find_running(home, NAME)
    assert running is not None
    return running.pid


def _settle(pid: int) -> None:
    """Until it has used less than a tenth of a core for a while."""
    before = -1.0

    def is_at_rest() -> bool:
        nonlocal before
        now = exact_cpu_seconds(pid)
        is_low, before = 0 <= now - before < REST_SECONDS / 10, now
        return is_low

    wait_until(is_at_rest, REST_SECONDS)

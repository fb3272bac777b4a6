"""Row 2a: memory of what holds idle programs that have printed more than a ring takes."""

import time
from collections.abc import Iterator

from bench.keepers import keepers, scratch_directory
from bench.processes import cpu_seconds, pss
from bench.table import WAIT_SECONDS, Row

GOAL_MB = 1.2
RING_BYTES = 256 << 10
FILL = ["/bin/sh", "-c", f"yes 'some text on a line' | head -c {3 * RING_BYTES}; exec sleep 1000"]


def rows(short: bool) -> Iterator[Row]:
    """PSS for each of 50. The peers keep less: dtach nothing, tmux 2,000 lines."""
    count = 2 if short else 50
    used = {}
    with scratch_directory() as scratch, keepers(scratch / "m") as found:
        for kind, keeper in found.items():
            for number in range(count):
                keeper.start(f"a{number}", FILL)
                if kind == "holder":
                    keeper.link(f"a{number}")
            _settle(keeper.pids())
            used[kind] = sum(map(pss, keeper.pids())) / count
    ours = used.pop("holder")
    yield Row("2a", "PSS per idle agent (of 1.2 MB)", ours, GOAL_MB, 1.0, "MB")
    for peer, size in used.items():
        yield Row("2a", f"  against {peer}", ours, size, None, "MB")


def _settle(pids: list[int]) -> None:
    """Until they have used no processor for a while."""
    before, deadline = -1.0, time.monotonic() + WAIT_SECONDS
    while (now := sum(map(cpu_seconds, pids))) != before:
        if time.monotonic() > deadline:
            raise TimeoutError("they do not come to rest")
        before = now
        time.sleep(1.0)

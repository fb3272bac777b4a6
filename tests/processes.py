"""Processes as /proc shows them."""

import contextlib
import os
import signal
import threading
from pathlib import Path

from tests.waiting import wait_until

GONE = "ZX"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process of this test, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    wait_until(lambda: not alive(pid))


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond: /proc/<pid>/stat counts hundredths."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def process_state(pid: int) -> str:
    """The letter of /proc/<pid>/stat; X when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def alive(pid: int) -> bool:
    """A zombie counts as gone: a container's first process may not reap."""
    return process_state(pid) not in GONE


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_idle(pid: int, most: int = 0) -> None:
    """Until it has used no more than so many ticks in a second. One that spins never does; one
    that has something to do at first does, sooner or later."""

    def is_idle() -> bool:
        before = ticks(pid)
        threading.Event().wait(1.0)
        return ticks(pid) - before <= most

    wait_until(is_idle)


def parent_of(pid: int) -> int:
    """0 when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def children_of(pid: int) -> list[int]:
    """Also the dead ones that nobody reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
    return found

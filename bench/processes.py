"""Processes: what they use, and their end. Nothing that the bench starts outlives it."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
END_SECONDS = 10.0


def cpu_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def exact_cpu_seconds(pid: int) -> float:
    """The same of the threads that it has now, in nanoseconds: for what uses little."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def pss(pid: int) -> float:
    """The process's share of memory, in MB (of 1,024 KB, as the ring has 256 KB)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


def rss_mb(pid: int) -> float:
    """MB that a process has in memory, shared pages and all."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def children(pid: int) -> list[int]:
    """The process's own."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def processes_with(words: bytes) -> list[int]:
    """Those whose command line has it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if words in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def end(*pids: int) -> None:
    """At once."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Hubs, holders and servers leave whoever started them; they become ours, not init's."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """All that is left, whatever it was. Only for a process that `adopt_orphans`."""
    deadline = time.monotonic() + END_SECONDS
    while children(os.getpid()) and time.monotonic() < deadline:
        end(*_descendants(os.getpid()))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)

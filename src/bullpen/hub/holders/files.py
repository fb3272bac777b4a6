"""What a holder leaves in the directory it was given, and what follows from it: whether it lives,
how its program ended, whether somebody is left that nobody holds.

A run is told by its tag: records of another one are as good as none. Synchronous; called in
threads. Files: docs/holder-protocol.md.
"""

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen import proc


@dataclass(frozen=True)
class Exit:
    """How a program ended."""

    at: float
    code: int | None
    signal: int | None
    is_terminated: bool = False  # its holder was told to end: the machine went down, for one


def find_exit(directory: Path, tag: str) -> dict[str, Any] | None:
    """The record of that run's end, if it left one."""
    record = read_json(directory / "exit.json")
    return record if record is not None and record.get("tag") == tag else None


def parse_exit(record: dict[str, Any]) -> Exit:
    """An exit record, from its file or from the holder. What is not there stays unknown."""
    at, code, number = (record.get(name) for name in ("ended", "code", "signal"))
    return Exit(
        at if isinstance(at, int | float) else time.time(),
        code if isinstance(code, int) else None,
        number if isinstance(number, int) else None,
        record.get("terminated") is True,
    )


def find_holder(directory: Path, tag: str) -> dict[str, Any] | None:
    """What that run's holder wrote about itself."""
    record = read_json(directory / "holder.json")
    if record is None or record.get("tag") != tag:
        return None
    pids = (record.get("pid"), record.get("child"))
    is_whole = all(isinstance(pid, int) for pid in pids) and {
        "start_time",
        "child_start_time",
    } <= set(record)
    return record if is_whole else None


def boot_of(holder: dict[str, Any]) -> str | None:
    """The id of the boot in which that holder was started; None where the system has none."""
    began = holder["start_time"]
    return began.partition("/")[0] if isinstance(began, str) else None


def is_held(directory: Path) -> bool:
    """Whether a living holder has the directory: it keeps a lock on it for as long as it lives."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def ask_to_listen(directory: Path, tag: str, socket: Path) -> None:
    """A holder whose socket somebody deleted makes a new one when it is told to."""
    holder = find_holder(directory, tag)
    if holder is not None and not socket.exists() and _lives(holder, "pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder["pid"], signal.SIGUSR1)


def end_orphan(holder: dict[str, Any]) -> None:
    """The kernel kills a program with its holder, unless it has become another user's or has
    asked not to be. Nobody may be left that nobody holds."""
    if _lives(holder, "child"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(holder["child"], signal.SIGKILL)  # it leads its group


def _lives(holder: dict[str, Any], who: str) -> bool:
    """Whether that process of the record is still the one that was meant."""
    began = holder["start_time" if who == "pid" else "child_start_time"]
    return began is not None and proc.start_time(holder[who]) == began


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in that file; None if there is none, or none that can be read."""
    try:
        record = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None  # other failures of the system prove nothing
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None

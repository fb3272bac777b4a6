"""What a holder leaves on disk about its run: who holds it, and how it ended."""

import contextlib
import json
import os
import time

from bullpen.holder import VERSION
from bullpen.holder.request import Request

LAST_CHARACTERS = 2000
LAST_BYTES = 4 * LAST_CHARACTERS

HOLDER = "holder.json"
EXIT = "exit.json"
OLD = ".old"


def write_holder(request: Request, child: int, started: float) -> None:
    """Who holds the program, by numbers that are never used again. OSError when it cannot be."""
    record: dict[str, object] = {
        "version": VERSION,
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "child": child,
        "child_start_time": start_time(child),
        "tag": request.tag,
        "started": started,
    }
    # Not flushed to the disk: after a crash of the machine it is about nobody.
    _write(request.session, HOLDER, record, flush=False)


def exit_record(status: int, tag: str, started: float, last: bytes) -> dict[str, object]:
    """`status` is what waitpid gave, `last` the end of the output."""
    return {
        "version": VERSION,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "tag": tag,
        "started": started,
        "ended": time.time(),
        "last_output": last.decode("utf-8", "replace")[-LAST_CHARACTERS:],
    }


def write_exit(session: str, record: dict[str, object]) -> None:
    """A full disk cannot be helped."""
    with contextlib.suppress(OSError):
        _write(session, EXIT, record, flush=True)


def set_aside(session: str) -> None:
    """An earlier run's records must not be taken for this one's."""
    for path in _paths(session):
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, path + OLD)  # noqa: PTH105


def put_back(session: str) -> None:
    """As they were: this run never began."""
    for path in _paths(session):
        for made in (path, f"{path}.new"):
            with contextlib.suppress(OSError):
                os.unlink(made)  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.rename(path + OLD, path)  # noqa: PTH104


def forget_old(session: str) -> None:
    """Remove what was set aside."""
    for path in _paths(session):
        with contextlib.suppress(OSError):  # what is in the way there is in nobody's way
            os.unlink(path + OLD)  # noqa: PTH108


def start_time(pid: int) -> str | None:
    """When the process began: the boot's id and the kernel's ticks. None without Linux's /proc."""
    try:
        # The command may hold spaces and parentheses; fields are counted after the last ")".
        ticks = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19]
        boot = _read("/proc/sys/kernel/random/boot_id").strip()
    except FileNotFoundError:
        return None
    return f"{boot.decode()}/{ticks.decode()}"


def _paths(session: str) -> list[str]:
    return [os.path.join(session, name) for name in (HOLDER, EXIT)]  # noqa: PTH118


def _write(session: str, name: str, record: dict[str, object], flush: bool) -> None:
    """By rename, so that whoever finds it finds it whole."""
    path = os.path.join(session, name)  # noqa: PTH118
    data = json.dumps(record).encode()
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if flush:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)

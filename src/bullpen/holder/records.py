"""The files that a holder writes about its run: `holder.json` and `exit.json`."""

import contextlib
import json
import os
import time

from bullpen.holder import VERSION
from bullpen.holder.request import HoldRequest

LAST_CHARACTERS = 2000
LAST_BYTES = 4 * LAST_CHARACTERS

HOLDER = "holder.json"
EXIT = "exit.json"


def set_aside(session: str) -> None:
    """An earlier run's records must not be taken for this one's."""
    for name in (HOLDER, EXIT):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{session}/{name}", f"{session}/{name}.old")  # noqa: PTH105


def put_back(session: str) -> None:
    """As they were: this run never began."""
    for name in (HOLDER, EXIT):
        for made in (name, f"{name}.new"):
            with contextlib.suppress(OSError):
                os.unlink(f"{session}/{made}")  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.rename(f"{session}/{name}.old", f"{session}/{name}")  # noqa: PTH104


def write_holder(request: HoldRequest, started: float) -> None:
    """In the process that becomes the program: who holds it, by numbers never used again."""
    holder, child = os.getppid(), os.getpid()
    holder_time, child_time = start_times(holder, child)
    record: dict[str, object] = {
        "version": VERSION,
        "pid": holder,
        "start_time": holder_time,
        "child": child,
        "child_start_time": child_time,
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


def start_times(*pids: int) -> list[str | None]:
    """When the processes began: the boot's id and the kernel's ticks. None without /proc."""
    try:
        boot = _read("/proc/sys/kernel/random/boot_id").strip()
        # The command may hold spaces and parentheses; fields are counted after the last ")".
        stats = [_read(f"/proc/{pid}/stat").rpartition(b")")[2].split() for pid in pids]
    except FileNotFoundError:
        return [None for _ in pids]
    return [f"{boot.decode()}/{fields[19].decode()}" for fields in stats]


def _write(session: str, name: str, record: dict[str, object], flush: bool) -> None:
    """By rename, so that whoever finds it finds it whole."""
    path = f"{session}/{name}"
    data = json.dumps(record).encode()
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if flush:
            os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)

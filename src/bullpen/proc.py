"""The one runner of short commands.

Every child starts in a session of its own and is signalled as a group, so that
a time-out leaves none of its children behind. Long-lived programs belong to the
holder, not here.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bullpen.errors import BullpenError, Kind

LOOK_SECONDS = 0.2  # at whether it is still wanted


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit code (negative for a signal) and output."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text, undecodable bytes kept as surrogates."""
        return os.fsdecode(self.out)

    @property
    def error_text(self) -> str:
        """Standard error as text for people."""
        return self.err.decode("utf-8", "replace").strip()


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 60.0,
    pass_fds: Sequence[int] = (),
    output: IO[bytes] | None = None,
    is_wanted: Callable[[], bool] | None = None,
) -> Done:
    """Run to the end or to the deadline; the exit code is the caller's to judge.

    With `output` both streams go to that file, and `Done` holds nothing of them. What is no
    longer wanted ends like what takes too long.
    """
    try:
        child = subprocess.Popen(
            [os.fspath(word) for word in argv],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT if output else subprocess.PIPE,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except FileNotFoundError as error:
        raise BullpenError(
            f"cannot start {argv[0]}: {error.strerror}: {error.filename}",
            kind=Kind.COMMAND_FAILED,
        ) from error
    except PermissionError as error:
        raise BullpenError(
            f"cannot start {argv[0]}: {error.strerror}: {error.filename}", kind=Kind.DENIED
        ) from error
    try:
        out, err = _communicate(child, stdin, timeout, is_wanted)
    except subprocess.TimeoutExpired as error:
        _kill_group(child)
        raise BullpenError(
            f"{argv[0]} did not end within {timeout:g} s", kind=Kind.COMMAND_FAILED
        ) from error
    except BaseException:
        # Ctrl-C and the like: the child has its own session and would not get it.
        _kill_group(child)
        raise
    return Done(child.returncode, out or b"", err or b"")


def _communicate(
    child: "subprocess.Popen[bytes]",
    stdin: bytes,
    timeout: float,
    is_wanted: Callable[[], bool] | None,
) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            seconds = left if is_wanted is None else min(left, LOOK_SECONDS)
            return child.communicate(stdin or None, timeout=seconds)
        except subprocess.TimeoutExpired:
            if is_wanted is None or left <= LOOK_SECONDS or not is_wanted():
                raise
        stdin = b""  # what was not taken yet goes on


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def start_time(pid: int) -> str | None:
    """When the process began, in the kernel's ticks with the boot's id; None if it is gone.

    A pid alone proves nothing: pids are used again. A zombie counts as gone.
    """
    try:
        # The command may hold spaces and parentheses; fields are counted after the last ")".
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"

"""Finds programs and runs short commands. Long-lived programs belong to holders.

A program is found in absolute entries of PATH only: a relative one, or an empty one, is the
directory that we happen to be in, and there an agent may have put a `git`. What we start gets a
PATH without such entries. Every child starts in a session of its own and is signalled as a group,
so that a time-out ends its children, too.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bullpen.errors import BullpenError, Kind
from bullpen.text import seconds_text

LOOK_SECONDS = 0.2  # at whether it is still wanted
MOST_OUTPUT_BYTES = 64 << 20  # in a file; it may be more by what is written between two looks

# For all commands of a thread: whether they are still wanted.
is_wanted_here: ContextVar[Callable[[], bool] | None] = ContextVar("is_wanted_here", default=None)


@contextlib.contextmanager
def wanted_while(condition: Callable[[], bool]) -> Iterator[None]:
    """Commands of this block end also when the condition no longer holds."""
    outer = is_wanted_here.get()
    token = is_wanted_here.set(lambda: condition() and (outer is None or outer()))
    try:
        yield
    finally:
        is_wanted_here.reset(token)


class TooMuchOutputError(BullpenError):
    """It filled the disk, and was ended."""


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


def absolute_entries(search_path: str) -> str:
    """The PATH without the entries that mean another directory wherever one is."""
    return os.pathsep.join(e for e in search_path.split(os.pathsep) if e.startswith("/"))


def relative_entries(search_path: str) -> list[str]:
    """Those that are left out; an empty one is the current directory."""
    entries = search_path.split(os.pathsep) if search_path else []
    return [entry or "." for entry in entries if not entry.startswith("/")]


def with_absolute_path(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that we start."""
    return {**env, "PATH": absolute_entries(env["PATH"])} if "PATH" in env else dict(env)


def find_program(name: str, env: Mapping[str, str] | None = None) -> str | None:
    """The absolute path of a program, by the PATH of that environment or of this process."""
    if "/" in name:
        path = os.path.abspath(name)  # noqa: PTH100 - a program keeps the name of its link
        return path if _is_program(path) else None
    search_path = (os.environ if env is None else env).get("PATH", os.defpath)
    path = _found.get((name, search_path), "")
    if _is_program(path):
        return path
    candidates = (f"{e}/{name}" for e in search_path.split(os.pathsep) if e.startswith("/"))
    path = next(filter(_is_program, candidates), "")
    _found[name, search_path] = path
    return path or None


def get_program(name: str, env: Mapping[str, str] | None = None) -> str:
    """The same; raises if there is none."""
    path = find_program(name, env)
    if path is None:
        raise BullpenError(
            f"cannot start {name}: it is in no directory of PATH",
            hint=f"install {name}; relative entries of PATH do not count",
            kind=Kind.COMMAND_FAILED,
        )
    return path


# By name and PATH: looked at again before use, because programs come and go under a long-lived hub.
_found: dict[tuple[str, str], str] = {}


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - runs very often


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
    """Run to the end or to the deadline; the exit code is the caller's to judge. A name without
    a directory is looked up by `find_program`, in the PATH that the program gets.

    With `output` both streams go to that file, and `Done` holds nothing of them; what writes more
    than `MOST_OUTPUT_BYTES` is ended. What is no longer wanted ends like what takes too long.
    """
    child: subprocess.Popen[bytes] | None = None
    variables = with_absolute_path(os.environ if env is None else env)
    name, *words = (os.fspath(word) for word in argv)
    program = name if "/" in name else get_program(name, variables)
    is_wanted = is_wanted or is_wanted_here.get()
    if output is not None:
        is_wanted = _while_small(output, is_wanted)
    try:
        with _interrupt_deferred():
            child = subprocess.Popen(
                [program, *words],
                cwd=cwd,
                env=variables,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=output or subprocess.PIPE,
                stderr=subprocess.STDOUT if output else subprocess.PIPE,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        out, err = _communicate(child, stdin, timeout, is_wanted)
    except FileNotFoundError as error:
        raise BullpenError(
            f"cannot start {argv[0]}: {error.strerror}: {error.filename}",
            kind=Kind.COMMAND_FAILED,
        ) from error
    except PermissionError as error:
        raise BullpenError(
            f"cannot start {argv[0]}: {error.strerror}: {error.filename}", kind=Kind.DENIED
        ) from error
    except subprocess.TimeoutExpired as error:
        _kill_group(child)
        if output is not None and not _is_small(output):
            raise TooMuchOutputError(
                f"{argv[0]} wrote more than {MOST_OUTPUT_BYTES >> 20} MiB and was ended",
                kind=Kind.COMMAND_FAILED,
            ) from error
        raise BullpenError(
            f"{argv[0]} did not end within {seconds_text(timeout)}", kind=Kind.COMMAND_FAILED
        ) from error
    except BaseException:
        # Ctrl-C and the like: the child has its own session and would not get it.
        _kill_group(child)
        raise
    return Done(child.returncode, out or b"", err or b"")


def _while_small(output: IO[bytes], is_wanted: Callable[[], bool] | None) -> Callable[[], bool]:
    return lambda: _is_small(output) and (is_wanted is None or is_wanted())


def _is_small(output: IO[bytes]) -> bool:
    return os.fstat(output.fileno()).st_size <= MOST_OUTPUT_BYTES


@contextlib.contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block. In the middle of `Popen` it would leave a child
    that nobody knows. Signals reach the main thread only."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        handler(signal.SIGINT, None)


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


def _kill_group(child: "subprocess.Popen[bytes] | None") -> None:
    if child is None:
        return
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

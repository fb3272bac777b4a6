"""Starting the program, and ending it with everything it started."""

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass

from bullpen.holder.request import Request

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only


def prctl(option: int, value: int) -> None:
    """Best effort where the kernel has no such call."""
    if _prctl is not None:
        _prctl(option, ctypes.c_ulong(value), 0, 0, 0)


@dataclass
class Child:
    """The running program and our ends of its terminal or pipes (-1: closed)."""

    pid: int
    output: int
    input: int
    error: int = -1


def spawn(request: Request, before_exec: Callable[[int], None]) -> Child:
    """Start the program; OSError says why it could not be.

    `before_exec` gets its pid while it waits to become the program; if that raises, it never does.
    """
    if request.is_pty:
        master, slave = os.openpty()
        set_size(master, request.rows, request.cols)
        theirs = (slave, slave, slave)
        ours = Child(0, output=master, input=master)
    else:
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        theirs = (stdin_read, stdout_write, stderr_write)
        ours = Child(0, output=stdout_read, input=stdin_write, error=stderr_read)
    gate_read, gate_write = os.pipe()
    report_read, report_write = os.pipe()
    parent = os.getpid()
    ours.pid = os.fork()
    if ours.pid == 0:
        os.close(gate_write)  # or it would wait for itself
        _become(request, theirs, gate_read, report_write, parent)
    for descriptor in {*theirs, gate_read, report_write}:
        os.close(descriptor)
    try:
        try:
            before_exec(ours.pid)
            os.write(gate_write, b"g")
        finally:
            os.close(gate_write)
        failure = os.read(report_read, 4)
        if failure:
            code = struct.unpack("i", failure)[0]
            raise OSError(code, os.strerror(code))
    except OSError:
        os.waitpid(ours.pid, 0)
        for descriptor in {ours.output, ours.input, ours.error} - {-1}:
            os.close(descriptor)
        raise
    finally:
        os.close(report_read)
    for descriptor in {ours.output, ours.input, ours.error} - {-1}:
        os.set_blocking(descriptor, False)
    return ours


def _become(
    request: Request, streams: tuple[int, int, int], gate: int, report: int, parent: int
) -> None:
    """In the forked child: turn into the program, or report the errno and end."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the holder died before we asked
        os.setsid()
        if request.is_pty:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for number in range(1, signal.NSIG):
            # Python ignores SIGPIPE; a program must not inherit that.
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(request.cwd)
        os.umask(request.umask)
        if not os.read(gate, 1):
            os._exit(1)
        os.execvpe(request.argv[0], request.argv, request.env)
    except OSError as error:
        os.write(report, struct.pack("i", error.errno or 1))
    finally:
        os._exit(127)


def set_size(terminal: int, rows: int, cols: int) -> None:
    """The terminal's size; the kernel tells the programs in it."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def signal_group(pid: int, number: int) -> None:
    """To the program's group; one that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def has_group(pid: int) -> bool:
    """Whether any process is left in the program's group."""
    reap()  # a zombie counts as a member
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def kill_descendants() -> bool:
    """Kill every child that is left and reap it; True when none is.

    Children of the killed become ours (subreaper), so this is called until it says so.
    """
    for pid in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return reap()[1]


def reap() -> tuple[dict[int, int], bool]:
    """The exit statuses of all that have ended, and whether no child is left at all."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended[pid] = status


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []  # not Linux, or a kernel without it

"""Starting the program, and ending it with everything it started."""

import _signal  # type: ignore[import-not-found]  # `signal` wraps it all in enums
import contextlib
import ctypes
import fcntl
import os
import struct
import termios

from bullpen.holder.request import HoldRequest

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)
_prctl = getattr(_libc, "prctl", None)  # Linux only
_mallopt = getattr(_libc, "mallopt", None)
M_MMAP_THRESHOLD = -3
LARGE = 1 << 16
SIGCONT: int = _signal.SIGCONT

# What the factory and its holders ignore, and a program must not inherit; the last two
# are Python's own doing.
IGNORED = [_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1]
IGNORED += [_signal.SIGPIPE, _signal.SIGXFSZ]


def prctl(option: int, value: int) -> None:
    """Best effort where the kernel has no such call."""
    if _prctl is not None:
        _prctl(option, value, 0, 0, 0)


def return_large_memory() -> None:
    """Give what takes more than a few pages back when it is free: by itself the C library learns
    from the first replay to keep the space for the next.
    """
    if _mallopt is not None:
        _mallopt(M_MMAP_THRESHOLD, LARGE)


class Child:
    """The running program and our ends of its terminal or pipes (-1: closed)."""

    def __init__(self, pid: int, output: int, input: int, error: int = -1) -> None:
        self.pid = pid
        self.output = output
        self.input = input
        self.error = error


def open_streams(request: HoldRequest) -> tuple[tuple[int, int, int], list[int]]:
    """A terminal or pipes: the program's standard streams, and our ends of them."""
    if request.is_pty:
        master, slave = os.openpty()
        set_size(master, request.rows, request.cols)
        theirs, ours = (slave, slave, slave), [master]
    else:
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        theirs = (stdin_read, stdout_write, stderr_write)
        ours = [stdout_read, stdin_write, stderr_read]
    for descriptor in ours:
        os.set_blocking(descriptor, False)
    return theirs, ours


def die_with(parent: int) -> None:
    """Have the kernel end this process, and the program it becomes, when its parent ends."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before we asked


def enter(request: HoldRequest, streams: tuple[int, int, int]) -> None:
    """The program's session, terminal, streams, signals and directory."""
    os.setsid()
    if request.is_pty:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for number in IGNORED:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    os.chdir(request.cwd)


def become(request: HoldRequest) -> None:
    """Exec the program."""
    os.umask(request.umask)
    try:
        os.execvpe(request.argv[0], request.argv, request.env)
    except OSError as error:
        # The name that was asked for, not the last place where it was looked for.
        raise OSError(error.errno, error.strerror, request.argv[0]) from error


def set_size(terminal: int, rows: int, cols: int) -> None:
    """The terminal's size; the kernel tells the programs in it."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def is_in_raw_mode(terminal: int) -> bool:
    """Whether the program reads keys one by one, as full-screen programs do."""
    local_modes: int = termios.tcgetattr(terminal)[3]
    return not local_modes & termios.ICANON


def is_in_front(terminal: int, pid: int) -> bool:
    """Whether the terminal's keys go to the program's own group, not to a job that it started."""
    return os.tcgetpgrp(terminal) == pid


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
            os.kill(pid, _signal.SIGKILL)
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

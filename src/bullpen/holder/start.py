"""From a request to a running program: the forked holder, and the child that it forks.

The child reads the request, opens files and sockets, hands them to the holder, and becomes the
program. Memory that the child writes is freed by exec; memory that a holder writes stays for its
life, and there are hundreds of holders. So the child does the work.
"""

import contextlib
import errno
import fcntl
import json
import marshal
import os
import stat
import struct
import time
from _signal import (  # type: ignore[import-not-found]  # `signal` wraps it all in enums
    SIGCHLD,
    SIGTERM,
    SIGUSR1,
    signal,
)
from _socket import (
    AF_UNIX,
    CMSG_SPACE,
    MSG_WAITALL,
    SCM_RIGHTS,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
    socketpair,
)

from bullpen.holder import VERSION, child, records
from bullpen.holder.listeners import KeptListeners, give
from bullpen.holder.log import Log, open_file
from bullpen.holder.main import BACKLOG, Holder, identity
from bullpen.holder.request import (
    HoldRequest,
    StartError,
    parse_request,
    read_request,
    refuse,
    reply,
)

CLAIM_SECONDS = 2.0  # a machine under load may hold up for as long somebody who only looks
LENGTH = struct.Struct("I")
PTY_ENDS = struct.Struct("5i")
PIPE_ENDS = struct.Struct("8i")


def hold(connection: int, listener: int, turns: int, factory: int, kept: KeptListeners) -> None:
    """In the process that the factory forked: become a holder, or leave; never returns.

    `listener` is the factory's own, `turns` a file to lock while a socket is made. What is `kept`
    are the hub's listeners.
    """
    session = ""
    code = 1
    try:
        os.close(listener)
        os.setsid()
        os.dup2(0, 2)  # else whoever reads the factory's errors waits for us too
        listeners = kept.inherit()
        holder = _start(connection, turns, factory, listeners)
        if holder is not None:
            holder.kept = listeners
            session = holder.request.session
            holder.run()
        code = 0
    except Exception:  # noqa: BLE001 - the boundary of a process
        if session:
            _leave_trace(session)
    finally:
        os._exit(code)


def _start(
    connection: int, turns: int, factory: int, listeners: tuple[socket, ...]
) -> Holder | None:
    """The holder of a running program; None if there is none, and all has been said."""
    for number in (SIGCHLD, SIGTERM, SIGUSR1):
        signal(number, _nothing)
    child.prctl(child.PR_SET_CHILD_SUBREAPER, 1)
    me = os.getpid()
    line, theirs = socketpair()
    try:
        pid = os.fork()
    except OSError as error:  # no process to be had
        refuse(connection, error)
        return None
    if pid == 0:
        line.close()
        _answer(connection, turns, factory, theirs, me, listeners)
    theirs.close()
    os.close(turns)
    holder = take_over(line, pid)
    if holder is None or line.recv(1):  # exec closes it without a word
        os.waitpid(pid, 0)  # so that nothing is left when our end of the connection closes
        return None
    line.close()
    try:
        answer = b'{"ok": true, "version": %d, "pid": %d, "child": %d}\n' % (VERSION, me, pid)
        os.write(connection, answer)
    except OSError:
        pass  # whoever asked has left; the program runs
    os.close(connection)
    return holder


def take_over(line: socket, pid: int) -> Holder | None:
    """The holder, with what the child hands over; None if it does not."""
    length, rights, *_ = line.recvmsg(LENGTH.size, CMSG_SPACE(PIPE_ENDS.size))
    if not rights:
        return None
    handed = line.recv(LENGTH.unpack(length)[0], MSG_WAITALL)
    greeting, socket_id, started, *values = marshal.loads(handed)
    request = HoldRequest(*values)
    if request.is_pty:
        number, lock, file, timing, terminal = PTY_ENDS.unpack(rights[0][2])
        program = child.Child(pid, terminal, terminal)
    else:
        number, lock, file, timing, error_file, *streams = PIPE_ENDS.unpack(rights[0][2])
        program = child.Child(pid, *streams)
    logs = [Log(request.session, "output", request.log_bytes, file, timing)]
    if not request.is_pty:
        logs.append(Log(request.session, "stderr", request.log_bytes, error_file))
    listener = socket(AF_UNIX, SOCK_STREAM, 0, number)
    return Holder(request, listener, lock, program, logs, greeting, socket_id, started)


def _nothing(*_: object) -> None:
    """A signal only has to wake the loop, which is told its number."""


def _leave_trace(session: str) -> None:
    """A holder that dies of a bug takes its program along; somebody will want to know why."""
    import traceback

    with contextlib.suppress(OSError):
        path = f"{session}/holder-error.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, traceback.format_exc().encode())
        os.close(descriptor)


# ── in the child, which becomes the program ──────────────────────────────────


def _answer(
    connection: int,
    turns: int,
    factory: int,
    line: socket,
    holder: int,
    listeners: tuple[socket, ...],
) -> None:
    """Do what is asked; never returns."""
    made: list[str] = []
    try:
        child.die_with(holder)
        fields = read_request(connection)
        what = fields.get("do")
        if what == "hold":
            _become(parse_request(fields), turns, line, made)
        if what not in ("ping", "leave", "listeners"):
            raise StartError("invalid", f"no such request: {what!r}")
        if what == "leave":
            os.kill(factory, SIGTERM)
        answer: dict[str, object] = {"ok": True, "version": VERSION, "pid": factory}
        if what == "listeners":
            give(listeners, connection, json.dumps(answer).encode() + b"\n")
        else:
            reply(connection, answer)
    except Exception as error:  # noqa: BLE001 - the boundary of a process
        for path in made:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        refuse(connection, error)
        line.send(b"-")
    finally:
        os._exit(127)


def _become(request: HoldRequest, turns: int, line: socket, made: list[str]) -> None:
    """Open everything, hand it over, exec the program. What is `made` must go if that fails."""
    started = time.time()
    names = ["output.log", "output.timing", *([] if request.is_pty else ["stderr.log"])]
    paths = [f"{request.session}/{name}" for name in names]
    listener = _listen(request.socket, turns)
    made.append(request.socket)
    ends = [listener.fileno(), _claim(request.session)]
    made += [path for path in paths if not os.path.exists(path)]  # noqa: PTH110
    ends += [open_file(path) for path in paths]
    theirs, ours = child.open_streams(request)
    ends += ours
    hand_over(line, request, ends, started)
    child.enter(request, theirs)
    try:
        records.set_aside(request.session)
        records.write_holder(request, started)
        child.become(request)
    except BaseException:
        records.put_back(request.session)
        raise


def hand_over(line: socket, request: HoldRequest, ends: list[int], started: float) -> None:
    """To the holder: its ends, the greeting, and what it has to know of the request."""
    greeting = {
        "version": VERSION,
        "name": request.name,
        "pid": os.getppid(),
        "child": os.getpid(),
        "mode": request.mode,
        "started": started,
        "tag": request.tag,
    }
    fields = {**vars(request), "argv": [], "env": {}}  # they are for the program
    state = [json.dumps(greeting).encode(), identity(request.socket), started, *fields.values()]
    handed = marshal.dumps(state)
    rights = struct.pack(f"{len(ends)}i", *ends)
    line.sendmsg([LENGTH.pack(len(handed))], [(SOL_SOCKET, SCM_RIGHTS, rights)])
    line.sendall(handed)


def _listen(path: str, turns: int) -> socket:
    """Two starts at one path come one after the other."""
    listener = socket(AF_UNIX, SOCK_STREAM)
    fcntl.lockf(turns, fcntl.LOCK_EX)
    try:
        listener.bind(path)  # the factory's umask makes it 0600
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise OSError(error.errno, error.strerror, path) from error
        _clear(path)
        listener.bind(path)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    os.close(turns)
    return listener


def _clear(path: str) -> None:
    """Remove the socket of a holder that was killed, and nothing else."""
    probe = socket(AF_UNIX, SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108
            return
    except OSError:
        pass
    else:
        raise StartError("exists", f"a holder already listens on {path}")
    raise StartError("exists", f"something is in the way: {path}")


def _claim(session: str) -> int:
    """One holder per session directory, for as long as it lives: an flock on the directory.

    It is the holder's alone, exec closes it here: a lock that is free proves that the holder
    is gone, whatever of its program still runs.
    """
    descriptor = os.open(session, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            # Somebody who only looks whether it is free has it for a moment, too.
            if time.monotonic() > deadline:
                raise StartError("exists", f"a holder already serves {session}") from error
        time.sleep(0.005)

"""The factory: holders are forked from it, with everything imported and shared.

One request per connection. The forked holder answers by itself, so a slow start holds
nobody up. Killing the factory, or replacing it, touches no holder.
"""

import contextlib
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from typing import Any

from bullpen.holder import VERSION, child, records
from bullpen.holder.log import Log
from bullpen.holder.main import Holder
from bullpen.holder.request import Request, StartError, parse_request

REQUEST_BYTES = 8 << 20
REQUEST_SECONDS = 10.0
CLAIM_SECONDS = 0.05
KINDS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
}


def main() -> None:
    """Serve requests until told to leave."""
    path = sys.argv[2]
    os.umask(0o177)  # sockets too are 0600; a holder makes no directories
    _fill_streams()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(128)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # holders are nobody's to wait for
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a holder may be sent it before it listens
    gc.collect()
    gc.freeze()  # or each holder's first collection would copy all of it
    _serve(listener)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


class Caller:
    """One connection whose request has not come as a whole yet: it holds nobody else up."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_SECONDS)
        self.connection = connection
        self.data = bytearray()
        self.deadline = time.monotonic() + REQUEST_SECONDS

    def read_on(self) -> bool:
        """Take what has come; True when that is all, or too much."""
        try:
            piece = self.connection.recv(1 << 16)
        except OSError:
            piece = b""
        self.data += piece
        return not piece or b"\n" in piece or len(self.data) > REQUEST_BYTES


def _serve(listener: socket.socket) -> None:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    callers: dict[int, Caller] = {}
    while True:
        for descriptor, _ in poll.poll(REQUEST_SECONDS * 1000 if callers else None):
            if descriptor == listener.fileno():
                with contextlib.suppress(OSError):  # it left, or no descriptor is free
                    connection, _address = listener.accept()
                    callers[connection.fileno()] = Caller(connection)
                    poll.register(connection, select.POLLIN)
            elif callers[descriptor].read_on():
                poll.unregister(descriptor)
                caller = callers.pop(descriptor)
                others = [listener, *(other.connection for other in callers.values())]
                with caller.connection as connection:
                    if not _answer(connection, bytes(caller.data), others):
                        return
        for caller in [c for c in callers.values() if c.deadline < time.monotonic()]:
            poll.unregister(caller.connection)
            del callers[caller.connection.fileno()]
            caller.connection.close()


def _answer(connection: socket.socket, line: bytes, others: list[socket.socket]) -> bool:
    """Deal with one request; False to leave."""
    try:
        request = _parse(line)
        what = request.get("do")
        if what == "hold":
            checked = parse_request(request)
            # Here, not in the fork: two requests for one socket must come one after the other.
            with _listen(checked.socket) as listener:
                if os.fork() == 0:
                    for other in others:
                        other.close()
                    _hold(checked, connection, listener)
            return True
        if what not in ("ping", "leave"):
            raise StartError("invalid", f"no such request: {what!r}")
        _reply(connection, {"ok": True, "version": VERSION, "pid": os.getpid()})
    except StartError as error:
        _reply(connection, {"ok": False, "error": error.kind, "message": str(error)})
        return True
    except OSError as error:  # no process to be had, or no place for the socket
        kind = KINDS.get(error.errno or 0, "failed")
        _reply(connection, {"ok": False, "error": kind, "message": str(error)})
        return True
    return bool(what != "leave")


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > REQUEST_BYTES:
        raise StartError("invalid", f"a request of more than {REQUEST_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StartError("invalid", f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise StartError("invalid", "not a JSON object")
    return request


def _reply(connection: socket.socket, fields: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(fields).encode() + b"\n")


# ── in the forked process ────────────────────────────────────────────────────


def _hold(request: Request, connection: socket.socket, listener: socket.socket) -> None:
    """Become a holder; never returns."""
    code = 1
    try:
        os.setsid()
        for number in range(3):  # else whoever reads the factory's output waits for us too
            os.close(number)
        _fill_streams()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child.prctl(child.PR_SET_CHILD_SUBREAPER, 1)
        holder = start(request, listener)
        _reply(
            connection,
            {"ok": True, "version": VERSION, "pid": os.getpid(), "child": holder.child.pid},
        )
        connection.close()
        holder.run()
        code = 0
    except StartError as error:
        _reply(connection, {"ok": False, "error": error.kind, "message": str(error)})
    except Exception:
        _leave_trace(request.session)
    finally:
        os._exit(code)


def _leave_trace(session: str) -> None:
    """A holder that dies of a bug takes its program along; somebody will want to know why."""
    import traceback

    with contextlib.suppress(OSError):
        path = os.path.join(session, "holder-error.txt")  # noqa: PTH118
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, traceback.format_exc().encode())
        os.close(descriptor)


def start(request: Request, listener: socket.socket) -> Holder:
    """Log, records and program; on failure nothing of them is left, nor the socket."""
    started = time.time()
    with contextlib.ExitStack() as undo:
        undo.callback(_unlink, request.socket)
        try:
            _claim(request.session)
            undo.callback(records.put_back, request.session)
            records.set_aside(request.session)
            log = Log(request.session, "output", request.log_bytes, timing=True)
            undo.callback(log.discard)
            error_log = None
            if not request.is_pty:
                error_log = Log(request.session, "stderr", request.log_bytes, timing=False)
                undo.callback(error_log.discard)
            program = child.spawn(request, lambda pid: records.write_holder(request, pid, started))
        except OSError as error:
            kind = KINDS.get(error.errno or 0, "failed")
            name = error.filename or _blamed(request)
            raise StartError(kind, f"{error.strerror}: {name}") from error
        undo.pop_all()
    records.forget_old(request.session)
    return Holder(request, listener, program, log, error_log, started)


def _claim(session: str) -> None:
    """One holder per session directory, for as long as it lives: an flock on the directory.

    The descriptor is left open on purpose, and closed in the program by exec: a lock that is
    free proves that the holder is gone, whatever of its program still runs.
    """
    descriptor = os.open(session, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            # Somebody who only looks whether it is free has it for a moment, too.
            if time.monotonic() > deadline:
                raise StartError("exists", f"a holder already serves {session}") from error
        time.sleep(0.005)


def _fill_streams() -> None:
    """Give 0, 1 and 2 to the null device where they are closed: no socket may take them."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < 3:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def _listen(path: str) -> socket.socket:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(path)
    except FileNotFoundError:
        pass
    except ConnectionRefusedError:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise StartError("exists", f"something is in the way: {path}") from None
        _unlink(path)  # of a holder that was killed
    except OSError:
        raise StartError("exists", f"something is in the way: {path}") from None
    else:
        raise StartError("exists", f"a holder already listens on {path}")
    finally:
        probe.close()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)  # the factory's umask makes it 0600
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{error.strerror}: {path}") from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _blamed(request: Request) -> str:
    """What an exec's error number is about: the kernel does not say."""
    return request.argv[0] if os.path.isdir(request.cwd) else request.cwd  # noqa: PTH112

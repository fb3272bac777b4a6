"""Hubs of tests are forked from a process that has loaded the hub's code, instead of loading it.

Loading takes half a second of a core, and the suite starts thousands of hubs. What is forked is
a process of its own with the environment, command line, descriptors, directory and session that
it would have had, `sitecustomize` included. Commands still start theirs the ordinary way.

Run as a program, with room for a command line and an environment, it is the process that forks.
"""

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bullpen.client import start

ROOM = 64 * 1024
PADDING = "BULLPEN_TEST_ROOM"
LARGEST = 1 << 20

_load = start._launch
_nursery: socket.socket | None = None


def install() -> None:
    """From now on, in this process."""
    start._launch = _launch


def _launch(root: Path, env: Mapping[str, str], answer: int, errors: int) -> None:
    is_other = "PYTHONPATH" in env and not _site(env).is_file()
    if is_other or len("".join((*env, *env.values()))) > ROOM // 2:
        return _load(root, env, answer, errors)
    talk = _nursery or _open()
    talk.setblocking(True)
    request = json.dumps({"root": str(root), "env": dict(env)}).encode()
    socket.send_fds(talk, [request], [answer, errors])
    if talk.recv(1) != b"+":
        raise RuntimeError("no hub was forked")
    return None


def _site(env: Mapping[str, str]) -> Path:
    """What an interpreter with one directory more on its path runs first."""
    return Path(env["PYTHONPATH"]) / "sitecustomize.py"


def _open() -> socket.socket:
    """It ends when this process does: nobody else has the other end of the socket."""
    global _nursery  # noqa: PLW0603 - one of each process that runs tests
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno()), "-" * 4096],
        cwd=Path(__file__).parents[2],
        env={**os.environ, PADDING: "-" * ROOM},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    _nursery = ours
    return ours


# ── the process that forks ───────────────────────────────────────────────────


def _serve(talk: socket.socket) -> None:
    from bullpen.hub import main

    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to fetch them
    while True:
        request, descriptors, _, _ = socket.recv_fds(talk, LARGEST, 2)
        if not request:
            return
        if os.fork() == 0:
            talk.close()
            _become(json.loads(request), *descriptors)
            status = 1
            try:
                main.main()
                status = 0
            except SystemExit as end:
                if end.code:
                    sys.stderr.write(f"{end.code}\n")
                else:
                    status = 0
            except BaseException:  # noqa: BLE001 - as the interpreter does with the last one
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        for descriptor in descriptors:
            os.close(descriptor)
        talk.send(b"+")


def _become(request: dict[str, object], answer: int, errors: int) -> None:
    """A process as it is when a hub was started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(str(request["root"]))
    os.dup2(0, 1)  # nothing, like the standard input
    os.dup2(errors, 2)
    os.close(errors)
    os.set_inheritable(answer, True)
    env: dict[str, str] = request["env"]  # type: ignore[assignment]
    os.environ.clear()
    os.environ.update(env)
    words = [sys.executable, "-m", "bullpen.hub.main", str(answer)]
    sys.argv, sys.orig_argv = words[2:], words
    _show(48, words)
    _show(50, [f"{name}={value}" for name, value in env.items()])
    if "PYTHONPATH" in env:
        runpy.run_path(str(_site(env)))


def _show(field: int, words: list[str]) -> None:
    """Write what /proc says of this process: where `field` of its `stat` says that it lies."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(fields[number - 3]) for number in (field, field + 1))
    text = b"".join(word.encode() + b"\0" for word in words)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

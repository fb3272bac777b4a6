"""Hubs and commands of tests are forked from a process that has loaded the code, instead of
loading it.

Loading takes a third to half a second of a core, and the suite starts thousands of them. What
is forked is a process of its own with the environment, command line, descriptors, directory and
session that it would have had; a hub's `sitecustomize` is run, too. What a command starts by
itself (a hub, say) it starts the ordinary way.

Run as a program, with room for a command line and an environment, it is the process that forks.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import posix
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from bullpen.client import start
from bullpen.hot.own_python import module_command

ROOM = 64 * 1024
PADDING = "BULLPEN_TEST_ROOM"
LARGEST = 1 << 20
# What an interpreter reads when it starts, and never again.
READ_AT_START = ("PYTHONPATH", "PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL", "LC_CTYPE")

_load = start._launch
_nursery: socket.socket | None = None


# ── in a test's process ──────────────────────────────────────────────────────


def install() -> None:
    """From now on, hubs that this process starts are forked. The first one waits until the code is
    loaded: on a machine with thirty things to do that alone may take a minute."""
    start._launch = _launch
    start.START_SECONDS = 240.0


def run(
    words: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: bytes, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` with the installed command, its output captured."""
    is_other = any(name in env for name in READ_AT_START)
    if is_other or env.get("LANG", "C.UTF-8") != "C.UTF-8" or _size(env) > ROOM // 2:
        return subprocess.run(
            words, cwd=cwd, env=env, input=stdin, capture_output=True, timeout=seconds, check=False
        )
    pipes = [os.pipe() for _ in range(4)]
    theirs = [pipes[0][0], *(pipe[1] for pipe in pipes[1:])]
    feed, output, errors, outcome = pipes[0][1], *(pipe[0] for pipe in pipes[1:])
    try:
        _ask({"words": list(words), "cwd": str(cwd), "env": dict(env)}, theirs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    deadline = time.monotonic() + seconds  # from when it is forked: the first has waited for that
    with ThreadPoolExecutor(3) as pool, os.fdopen(outcome, "rb", 0) as told:
        pid = int(told.readline())
        pool.submit(_write, feed, stdin)
        read = [pool.submit(_read, descriptor) for descriptor in (output, errors)]
        try:
            if not select.select([told], [], [], seconds)[0]:
                raise TimeoutError
            out, err = (each.result(deadline - time.monotonic()) for each in read)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(words), seconds) from None
        code = os.waitstatus_to_exitcode(int(told.readline()))
    return subprocess.CompletedProcess(list(words), code, out, err)


def _launch(root: Path, env: Mapping[str, str], answer: int, errors: int) -> None:
    is_other = "PYTHONPATH" in env and not _site(env).is_file()
    if is_other or _size(env) > ROOM // 2:
        return _load(root, env, answer, errors)
    return _ask({"cwd": str(root), "env": dict(env)}, [answer, errors])


def _ask(request: dict[str, Any], descriptors: list[int]) -> None:
    talk = _nursery or _open()
    talk.setblocking(True)
    request["umask"] = _umask()
    socket.send_fds(talk, [json.dumps(request).encode()], descriptors)
    if talk.recv(1) != b"+":
        raise RuntimeError("nothing was forked")


def _open() -> socket.socket:
    """It ends when this process does: nobody else has the other end of the socket."""
    global _nursery  # noqa: PLW0603 - one of each process that runs tests
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno()), "-" * 4096],
        cwd=Path(__file__).parents[1],
        env={**os.environ, PADDING: "-" * ROOM},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    _nursery = ours
    return ours


def _umask() -> int:
    """This process's: what is forked would have it, and not that of whoever was first."""
    return int(Path("/proc/self/status").read_text().partition("\nUmask:")[2].split()[0], 8)


def _size(env: Mapping[str, str]) -> int:
    return len("".join((*env, *env.values())))


def _site(env: Mapping[str, str]) -> Path:
    """What an interpreter with one directory more on its path runs first."""
    return Path(env["PYTHONPATH"]) / "sitecustomize.py"


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb", 0) as pipe:
        pipe.write(data)


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


# ── the process that forks ───────────────────────────────────────────────────


def _serve(talk: socket.socket) -> None:
    _load_commands()
    import bullpen.hub.mcp.server  # noqa: F401 - loaded by a hub when its first agent starts
    from bullpen.hub import main

    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to fetch them
    while True:
        asked, descriptors, _, _ = socket.recv_fds(talk, LARGEST, 4)
        if not asked:
            return
        if os.fork() == 0:
            talk.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            request = json.loads(asked)
            if "words" in request:
                _be_command(request, *descriptors)
            else:
                _be_hub(request, *descriptors, main.main)
        for descriptor in descriptors:
            os.close(descriptor)
        talk.send(b"+")


def _load_commands() -> None:
    import bullpen.cli

    for module in pkgutil.walk_packages(bullpen.cli.__path__, "bullpen.cli."):
        importlib.import_module(module.name)


def _be_hub(
    request: dict[str, Any], answer: int, errors: int, main: Callable[[], object]
) -> NoReturn:
    os.setsid()
    os.dup2(0, 1)  # nothing, like the standard input
    os.dup2(errors, 2)
    os.close(errors)
    os.set_inheritable(answer, True)
    words = module_command("bullpen.hub.main", str(answer))
    _become(request, words, words[3:])
    if "PYTHONPATH" in request["env"]:
        runpy.run_path(str(_site(request["env"])))
    _end(main)


def _be_command(
    request: dict[str, Any], stdin: int, output: int, errors: int, outcome: int
) -> NoReturn:
    """Its number and how it ended go to `outcome`, from a process that waits for it."""
    if pid := os.fork():
        for descriptor in (stdin, output, errors):
            os.close(descriptor)
        os.write(outcome, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(outcome, b"%d\n" % status)
        os._exit(0)
    os.close(outcome)
    for number, descriptor in enumerate((stdin, output, errors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    words = request["words"]
    _become(request, [sys.executable, *words], words)
    how = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False}
    sys.stdin, sys.stdout = open(0, **how), open(1, "w", **how)  # noqa: SIM115
    from bullpen.__main__ import main

    _end(main)


def _become(request: dict[str, Any], words: list[str], arguments: list[str]) -> None:
    """A process as it is when it was started with that command line."""
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    env: dict[str, str] = request["env"]
    os.environ.clear()
    os.environ.update(env)
    posix.environ.clear()
    posix.environ.update({os.fsencode(name): os.fsencode(value) for name, value in env.items()})
    time.tzset()
    sys.argv, sys.orig_argv = arguments, words
    _show(48, words)
    _show(50, [f"{name}={value}" for name, value in env.items()])


def _show(field: int, words: list[str]) -> None:
    """Write what /proc says of this process: where `field` of its `stat` says that it lies."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(fields[number - 3]) for number in (field, field + 1))
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, min(len(text), end - begin))


def _end(main: Callable[[], object]) -> NoReturn:
    """As the interpreter does with what comes out of the program."""
    status = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        else:
            status = end.code or 0
    except BaseException:  # noqa: BLE001 - the last one
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
        except OSError:
            status = 120
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

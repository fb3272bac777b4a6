"""Rows 2a, 2b, 3a and 3b: holders against a bare terminal, tmux and dtach.

Memory, starting, output and keys of many programs. Peers that are not installed are left out.
"""

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from bench.table import Row, interleaved, timed
from bullpen import holder

SECONDS = 60.0
FEW, MANY = 50, 500
BLOCK = 50  # of starts that a median is taken of
OUTPUT_BYTES = 30_000_000
KEYS = 200
END = b"THIS-IS-THE-END"
RING_BYTES = 256 << 10
ENV = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "HOME": "/", "LANG": "C.UTF-8"}

# It says again and again that it is ready (dtach shows nothing old), until it is given a byte.
_RAW = (
    'stty -icanon -echo min 0 time 1; until [ "$(head -c 1)" ]; do printf READY; done;'
    " stty min 1 time 0; "
)
ECHO = ["/bin/sh", "-c", _RAW + "exec cat"]
PRINT = ["/bin/sh", "-c", _RAW + 'cat "$0"; exec cat']
FILL = ["/bin/sh", "-c", f"yes 'some text on a line' | head -c {3 * RING_BYTES}; exec sleep 1000"]
SLEEP = ["/bin/sleep", "1000"]


def rows() -> list[Row]:
    """All of them; some minutes."""
    with tempfile.TemporaryDirectory(prefix="bb", dir="/tmp") as scratch:
        return [*memory(Path(scratch, "m")), *starts(Path(scratch, "s")), *traffic(Path(scratch))]


# Those who hold programs


class Keeper(Protocol):
    """Starts programs in terminals and says which processes of its own that takes."""

    def start(self, name: str, argv: list[str]) -> None: ...

    def pids(self) -> list[int]: ...


class Holders:
    """Ours: a factory, and what it forks."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True)
        self.place = place
        self.factory = str(place / "f")
        self.holders: list[int] = []
        self.links: list[socket.socket] = []
        self.process = subprocess.Popen(
            holder.command(self.factory), env={"PATH": os.defpath}, cwd="/", start_new_session=True
        )
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            return bool(self.ask({"do": "ping"})["ok"])
        except OSError:
            return False

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self.factory)
            line.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(line.makefile("rb").readline())
        return answer

    def start(self, name: str, argv: list[str]) -> None:
        session = self.place / f"{name}.d"
        session.mkdir()
        request = {
            "do": "hold",
            "name": name,
            "socket": str(self.socket(name)),
            "session": str(session),
            "argv": argv,
            "env": ENV,
            "cwd": "/",
        }
        answer = self.ask(request)
        assert answer["ok"], answer
        self.holders.append(answer["pid"])

    def socket(self, name: str) -> Path:
        return self.place / name

    def link(self, name: str) -> None:
        """The quiet connection that a hub keeps to each."""
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self.socket(name)))
        line.recv(1000)
        self.links.append(line)

    def pids(self) -> list[int]:
        return self.holders

    def close(self) -> None:
        for line in self.links:
            line.close()
        end(*self.holders)  # the kernel ends their programs
        self.process.kill()
        self.process.wait()


class Tmux:
    """One server for all."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True)
        self.command = ["tmux", "-S", str(place / "t"), "-f", "/dev/null"]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self.command, *words], env=ENV, check=True, capture_output=True, text=True
        )
        return done.stdout

    def start(self, name: str, argv: list[str]) -> None:
        self.run("new-session", "-d", "-s", name, "-x", "80", "-y", "24", *argv)
        if name == "first":
            self.run("set-option", "-g", "status", "off")  # it would be redrawn now and then

    def attach(self, name: str) -> list[str]:
        return [*self.command, "attach-session", "-t", name]

    def pids(self) -> list[int]:
        return [int(self.run("display-message", "-p", "#{pid}"))]

    def close(self) -> None:
        self.run("kill-server")


class Dtach:
    """One process for each."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True)
        self.place = place

    def start(self, name: str, argv: list[str]) -> None:
        path = self.place / name
        subprocess.run(["dtach", "-n", path, "-E", *argv], env=ENV, check=True)
        wait_until(path.exists)

    def attach(self, name: str) -> list[str]:
        return ["dtach", "-a", str(self.place / name), "-E", "-r", "none"]

    def pids(self) -> list[int]:
        return processes_with(f"dtach\0-n\0{self.place}/".encode())

    def close(self) -> None:
        found = self.pids()
        programs = [child for pid in found for child in children(pid)]
        end(*found, *programs)


@contextlib.contextmanager
def keepers(place: Path) -> Iterator[dict[str, Any]]:
    """Ours, and the peers that are there."""
    kinds: dict[str, Callable[[Path], Any]] = {"holder": Holders, "tmux": Tmux, "dtach": Dtach}
    with contextlib.ExitStack() as stack:
        found = {}
        for name, kind in kinds.items():
            if name == "holder" or shutil.which(name):
                found[name] = kind(place / name)
                stack.callback(found[name].close)
        yield found


# 2a: memory


def memory(place: Path) -> list[Row]:
    """PSS of what holds 50 idle programs that have printed more than a ring takes."""
    used = {}
    with keepers(place) as found:
        for kind, keeper in found.items():
            for number in range(FEW):
                keeper.start(f"a{number}", FILL)
                if kind == "holder":
                    keeper.link(f"a{number}")
            settle(keeper.pids())
            used[kind] = sum(map(pss, keeper.pids())) / FEW
    ours = used.pop("holder")
    # The goal is 1.2 MB; the peers keep less: dtach nothing, tmux 2,000 lines.
    return [
        Row("2a", f"PSS per idle agent, against {peer}", ours, size, goal=1.2 / size, unit="MB")
        for peer, size in used.items()
    ]


def pss(pid: int) -> float:
    """The process's share of memory, in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError("no Pss")


def settle(pids: list[int]) -> None:
    """Until they have used no processor for a while."""
    before = -1
    while (now := sum(map(ticks, pids))) != before:
        before = now
        time.sleep(1.0)


# 2b: starting


def starts(place: Path) -> list[Row]:
    """One more program: until its socket listens, or its session is there."""
    taken: dict[str, list[float]] = {}
    with keepers(place) as found:
        for number in range(MANY):
            turns = list(found.items())
            for kind, keeper in turns if number % 2 else reversed(turns):
                seconds = timed(partial(keeper.start, f"a{number}", SLEEP))
                taken.setdefault(kind, []).append(seconds)
    result = []
    for many, goal in ((FEW, 1.0), (MANY, 0.5)):
        at = {kind: median(times[many - BLOCK : many]) for kind, times in taken.items()}
        for peer in taken.keys() - {"holder"}:
            # Only tmux is a goal: dtach is a small C program that keeps no output.
            wanted = goal if peer == "tmux" else float("inf")
            what = f"start at N = {many}, against {peer}"
            result.append(Row("2b", what, at["holder"], at[peer], goal=wanted))
    return result


# 3a, 3b: output and keys


class Line(Protocol):
    """A way to a program: what is typed goes in, what it prints comes out."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> None: ...


class BareLine:
    """The program's own terminal, read by nobody else."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, ENV)

    def send(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def receive(self) -> bytes:
        return os.read(self.terminal, 1 << 16)

    def close(self) -> None:
        end(self.pid)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class SocketLine:
    """A holder's socket, attached."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.sendall(_frame(b"A", b'{"nudge": false}'))

    def send(self, data: bytes) -> None:
        self.socket.sendall(_frame(b"I", data))

    def receive(self) -> bytes:
        return self.socket.recv(1 << 18)

    def close(self) -> None:
        self.socket.close()


def _frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">cI", kind, len(payload)) + payload


def traffic(place: Path) -> list[Row]:
    """Output and keys of one program, through each way there is."""
    text = place / "text"
    text.write_bytes(b"".join(_text()))
    printing = [*PRINT, str(text)]
    with keepers(place / "t") as found:
        for keeper in found.values():
            keeper.start("first", ECHO)
        lines: dict[str, Callable[[str, list[str]], Line]] = {
            "raw": lambda _name, argv: BareLine(argv),
            "socket": lambda name, _argv: SocketLine(found["holder"].socket(name)),
        }
        for peer in found.keys() - {"holder"}:
            lines[peer] = lambda name, _argv, keeper=found[peer]: BareLine(keeper.attach(name))  # type: ignore[misc]
        runs = iter(range(1_000_000))

        def output(kind: str) -> float:
            """Seconds for all of the text to arrive."""
            name = f"p{next(runs)}"
            if kind != "raw":
                found["holder" if kind == "socket" else kind].start(name, printing)
            with contextlib.closing(lines[kind](name, printing)) as line:
                receive_until(line, b"READY")
                return timed(lambda: (line.send(b"g"), receive_until(line, END)))

        with contextlib.ExitStack() as stack:
            echoes = {
                kind: stack.enter_context(contextlib.closing(make("first", ECHO)))
                for kind, make in lines.items()
            }
            for line in echoes.values():
                receive_until(line, b"READY")
                line.send(b"g")
            kinds = list(lines)
            keys = interleaved(
                15,
                *(lambda kind=kind: key_time(echoes[kind]) for kind in kinds),  # type: ignore[misc]
            )
        outputs = interleaved(5, *(lambda kind=kind: output(kind) for kind in kinds))  # type: ignore[misc]
    key, out = dict(zip(kinds, keys, strict=True)), dict(zip(kinds, outputs, strict=True))
    return _traffic_rows(out, key)


def _text() -> Iterator[bytes]:
    yield from (b"%09d %s\r\n" % (number, b"text " * 13) for number in range(OUTPUT_BYTES // 77))
    yield END


def _traffic_rows(out: dict[str, float], key: dict[str, float]) -> list[Row]:
    size = f"{OUTPUT_BYTES // 1_000_000} MB"
    result = [Row("3a", f"{size} to the socket, against raw", out["socket"], out["raw"], 1 / 0.8)]
    for peer in ("tmux", "dtach"):
        if peer in out:
            result += [
                Row("3a", f"{size} to the socket, against {peer}", out["socket"], out[peer], 1.0),
                Row("3b", f"key and echo, socket, against {peer}", key["socket"], key[peer], 1.0),
            ]
    return sorted(result, key=lambda row: row.number)


def receive_until(line: Line, wanted: bytes) -> None:
    """Read on until that has come."""
    tail = b""
    while wanted not in tail:
        piece = line.receive()
        assert piece, "it ended"
        tail = tail[-len(wanted) :] + piece


def key_time(line: Line) -> float:
    """The median of some keys typed and seen."""
    times = []
    for number in range(KEYS):
        key = b"%c" % (ord("a") + number % 26)
        times.append(timed(lambda key=key: (line.send(key), receive_until(line, key))))  # type: ignore[misc]
    return median(times)


# Processes


def wait_until(condition: Callable[[], bool]) -> None:
    """Until it is true; fails at the deadline."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.0005)


def ticks(pid: int) -> int:
    """Processor time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def children(pid: int) -> list[int]:
    """The process's own."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_with(words: bytes) -> list[int]:
    """Those whose command line has it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if words in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def end(*pids: int) -> None:
    """At once."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

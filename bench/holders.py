"""Rows 2a, 2b, 3a and 3b: holders against a bare terminal, tmux and dtach.

Memory, starting, output and keys of many programs. Peers that are not installed are left out.
"""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from bench.table import Row, interleaved, timed
from bullpen import holder
from bullpen.holder import factory as _compiled  # noqa: F401 - or the first one would do that

SECONDS = 60.0
FEW, MANY = 50, 500
BLOCK = 50  # of starts that a median is taken of
OUTPUT_BYTES = 30_000_000
KEYS = 200
TRIES = 20
END = b"THIS-IS-THE-END"
RING_BYTES = 256 << 10
BULLPEN = str(Path(sys.executable).with_name("bullpen"))
# In memory if there is a place: on a disk where thousands of files were deleted in the last
# minutes, as by the rows of worktrees, ext4 takes half a millisecond to number a new one.
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"
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
    with tempfile.TemporaryDirectory(prefix="bb", dir=SCRATCH) as scratch:
        return [*memory(Path(scratch, "m")), *starts(Path(scratch, "s")), *traffic(Path(scratch))]


# Those who hold programs: each can start one, attach to it, and tell its own processes


class Holders:
    """Ours: a factory, and what it forks, in a home without a hub."""

    def __init__(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([BULLPEN, "init", place], check=True, stdout=subprocess.DEVNULL)
        self.home = place
        self.factory = str(place / "sockets" / "f")
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
        session = self.home / "sessions" / name
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
        return self.home / "sockets" / f"agent.{name}.sock"

    def attach(self, name: str) -> list[str]:
        return ["env", f"BULLPEN_DIR={self.home}", BULLPEN, "attach", name]

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
        place.mkdir()
        self.is_set = False
        self.command = ["tmux", "-S", str(place / "t"), "-f", "/dev/null"]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self.command, *words], env=ENV, check=True, capture_output=True, text=True
        )
        return done.stdout

    def start(self, name: str, argv: list[str]) -> None:
        self.run("new-session", "-d", "-s", name, "-x", "80", "-y", "24", *argv)
        if not self.is_set:  # it needs a server; the row would be redrawn now and then
            self.run("set-option", "-g", "status", "off")
            self.is_set = True

    def attach(self, name: str) -> list[str]:
        return [*self.command, "attach-session", "-t", name]

    def pids(self) -> list[int]:
        return [int(self.run("display-message", "-p", "#{pid}"))]

    def close(self) -> None:
        self.run("kill-server")


class Dtach:
    """One process for each."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
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
            used[kind] = round(sum(map(pss, keeper.pids())) / FEW, 2)
    ours = used.pop("holder")
    # The goal is 1.2 MB; the peers keep less: dtach nothing, tmux 2,000 lines.
    return [
        Row("2a", f"PSS per idle agent, against {peer}", ours, size, goal=1.2 / size, unit="MB")
        for peer, size in used.items()
    ]


def pss(pid: int) -> float:
    """The process's share of memory, in MB (of 1,024 KB, as the ring has 256 KB)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
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
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.execvpe(argv[0], argv, ENV)

    def send(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def receive(self) -> bytes:
        return os.read(self.terminal, 1 << 16)

    def close(self) -> None:
        end(self.pid)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class DroppedError(Exception):
    """The machine was so busy that we fell behind by megabytes, and were told so."""


class SocketLine:
    """A holder's socket, attached."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))
        self.socket.sendall(_frame(b"A", b'{"nudge": false}'))

    def send(self, data: bytes) -> None:
        self.socket.sendall(_frame(b"I", data))

    def receive(self) -> bytes:
        piece = self.socket.recv(1 << 16)
        if piece.endswith(b'{"reason": "slow"}'):
            raise DroppedError
        return piece

    def close(self) -> None:
        self.socket.close()


def _frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">cI", kind, len(payload)) + payload


def traffic(place: Path) -> list[Row]:
    """Output and keys of one program, through each way there is."""
    text = place / "text"
    with text.open("wb") as file:
        file.writelines(b"%09d %s\n" % (n, b"text " * 13) for n in range(OUTPUT_BYTES // 76))
        file.write(END)
    with keepers(place / "t") as found:
        ways = Ways(found, [*PRINT, str(text)])
        key = ways.measure(15, ways.key)
        out = ways.measure(5, ways.output)
    size = f"{OUTPUT_BYTES // 1_000_000} MB"
    wanted = [
        ("3a", "socket", "raw", 1 / 0.8),
        ("3a", "socket", "tmux", 1.0),
        ("3a", "tty", "tmux", 0.5),
        ("3a", "tty", "dtach", float("inf")),
        ("3b", "socket", "tmux", 1.0),
        ("3b", "tty", "tmux", 1.4),
        ("3b", "tty", "dtach", float("inf")),
    ]
    result = []
    for number, ours, peer, goal in wanted:
        times, what = (out, f"{size} to the") if number == "3a" else (key, "key and echo,")
        if peer in times:
            label = f"{what} {ours}, against {peer}"
            row = Row(number, label, times[ours], times[peer], goal)
            result.append(row if number == "3a" else _microseconds(row))
    return result


def _microseconds(row: Row) -> Row:
    ours, bare = round(row.ours * 1e6), round(row.bare * 1e6)
    return replace(row, ours=ours, bare=bare, unit="µs")


class Ways:
    """The ways to a program: bare, through our socket, and through clients in a terminal."""

    def __init__(self, found: dict[str, Any], printing: list[str]) -> None:
        self.found = {"socket": found["holder"], "tty": found["holder"], **found}
        self.kinds = ["raw", "socket", "tty", *(found.keys() - {"holder"})]
        self.printing = printing
        self.names = (f"p{number}" for number in itertools.count())
        self.echoes: dict[str, Line] = {}

    def open(self, kind: str, argv: list[str]) -> Line:
        """A new program, ready to be let go."""
        name = next(self.names)
        line: Line
        if kind == "raw":
            line = BareLine(argv)
        else:
            keeper = self.found[kind]
            keeper.start(name, argv)
            is_socket = kind == "socket"
            line = SocketLine(keeper.socket(name)) if is_socket else BareLine(keeper.attach(name))
        receive_until(line, b"READY")
        return line

    def output(self, kind: str) -> float:
        """Seconds for all of the text to arrive."""
        for _ in range(TRIES):
            with contextlib.closing(self.open(kind, self.printing)) as line:
                try:
                    return timed(partial(_exchange, line, b"g", END))
                except DroppedError:
                    pass  # it got less than all: no measurement
        raise DroppedError

    def key(self, kind: str) -> float:
        """The median of some keys typed and seen, always at the same program."""
        if kind not in self.echoes:
            self.echoes[kind] = self.open(kind, ECHO)
            self.echoes[kind].send(b"g")
        line = self.echoes[kind]
        keys = [b"%c" % (ord("a") + number % 26) for number in range(KEYS)]
        return median(timed(partial(_exchange, line, key, key)) for key in keys)

    def measure(self, rounds: int, work: Callable[[str], float]) -> dict[str, float]:
        """All ways in turns."""
        medians = interleaved(rounds, *(partial(work, kind) for kind in self.kinds))
        for line in self.echoes.values():
            line.close()
        self.echoes.clear()
        return dict(zip(self.kinds, medians, strict=True))


def _exchange(line: Line, typed: bytes, wanted: bytes) -> None:
    line.send(typed)
    receive_until(line, wanted)


def receive_until(line: Line, wanted: bytes) -> None:
    """Read on until that has come."""
    tail = b""
    while wanted not in tail:
        piece = line.receive()
        assert piece, "it ended"
        tail = tail[-len(wanted) :] + piece


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

"""Those who hold programs: ours, tmux and dtach. Each can start one, attach to it, and tell its
own processes. Peers that are not installed are left out."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.processes import children, end, processes_with
from bench.table import BULLPEN, MEMORY, PREFIX, Skipped, wait_until
from bullpen import holder
from bullpen.holder import factory as _compiled  # noqa: F401 - or the first one would do that

ENV = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "HOME": "/", "LANG": "C.UTF-8"}


class Holders:
    """Ours: a factory, and what it forks, in a home without a hub."""

    def __init__(self, place: Path) -> None:
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
        subprocess.run([*self.command, "kill-server"], capture_output=True, check=False)


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
def scratch_directory() -> Iterator[Path]:
    """For their files."""
    with tempfile.TemporaryDirectory(
        prefix=PREFIX, dir=MEMORY, ignore_cleanup_errors=True
    ) as scratch:
        yield Path(scratch)


def need_tmux() -> None:
    """It is the peer of most goals."""
    if not shutil.which("tmux"):
        raise Skipped("tmux is not installed")


@contextlib.contextmanager
def keepers(place: Path) -> Iterator[dict[str, Any]]:
    """Ours, and the peers that are there."""
    place.mkdir()
    kinds: dict[str, Callable[[Path], Any]] = {"holder": Holders, "tmux": Tmux, "dtach": Dtach}
    with contextlib.ExitStack() as stack:
        found = {}
        for name, kind in kinds.items():
            if name == "holder" or shutil.which(name):
                found[name] = kind(place / name)
                stack.callback(found[name].close)
        yield found

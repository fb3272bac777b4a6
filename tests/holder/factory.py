"""A real factory and real holders.

Everything that a factory or a program of a test starts carries HOLDER_TEST=<its directory>
in its environment, so that what is left over is found, also in sessions of its own, and
ended by pid.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen import holder as held
from tests.holder.client import SECONDS, Client
from tests.processes import alive
from tests.waiting import wait_until

MARK = "HOLDER_TEST"


def marked(root: Path) -> set[int]:
    """Every living process of this test's factory, holders and programs."""
    sign = f"{MARK}={root}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if sign in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return {pid for pid in found if alive(pid)}


def end_marked(root: Path) -> None:
    def are_gone() -> bool:
        left = marked(root)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_until(are_gone)


@dataclass(frozen=True)
class Holder:
    pid: int
    child: int
    socket: Path
    session: Path
    clients: list[Client]

    def connect(self, rcvbuf: int = 0) -> Client:
        """A connection whose greeting has been read."""
        client = Client(self.socket, rcvbuf)
        self.clients.append(client)
        assert client.next().type == "H"
        return client

    def attached(self, **fields: Any) -> Client:
        client = self.connect()
        client.attach(**fields)
        return client

    def ready(self, **fields: Any) -> Client:
        """Attached to a program that said READY, with no output read so far."""
        client = self.connect()
        replay = client.attach(**fields)
        if b"READY" not in replay:
            client.collect(b"READY")
        client.output.clear()
        return client

    def wait_gone(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait until the holder has left; its exit record."""
        wait_until(lambda: not alive(self.pid), seconds)
        return self.record()

    def record(self) -> dict[str, Any]:
        return json.loads((self.session / "exit.json").read_text())  # type: ignore[no-any-return]

    def log(self, name: str = "output.log") -> bytes:
        return (self.session / name).read_bytes()


class Factory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = root / "f"
        self.process: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []
        self.made = 0

    def start(self, before: tuple[str, ...] = (), **popen: Any) -> None:
        """Start it, `before` being words that its command line is given to."""
        self.process = subprocess.Popen(
            [*before, *held.command(self.socket)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], MARK: str(self.root)},
            **popen,
        )
        wait_until(
            lambda: self.answers() or self.process is None or self.process.poll() is not None
        )
        assert self.process.poll() is None, "the factory ended at once"

    def answers(self) -> bool:
        try:
            return bool(self.ask({"do": "ping"})["ok"])
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def end(self) -> None:
        """Kill it, it alone, with -9."""
        assert self.process
        self.process.kill()
        self.process.wait(SECONDS)

    def ask(self, request: dict[str, Any] | bytes, seconds: float = SECONDS) -> dict[str, Any]:
        line = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        reply = self.ask_raw(line, seconds)
        assert reply.endswith(b"\n"), reply
        assert reply.count(b"\n") == 1
        return json.loads(reply)  # type: ignore[no-any-return]

    def ask_raw(self, data: bytes, seconds: float = SECONDS) -> bytes:
        """What it says until it closes."""
        deadline = time.monotonic() + seconds
        reply = b""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(seconds)
            line.connect(str(self.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while piece := line.recv(65536):
                    reply += piece
                    line.settimeout(max(0.001, deadline - time.monotonic()))
        return reply

    def env(self, **more: str) -> dict[str, str]:
        path = os.environ["PATH"]
        return {"PATH": path, "TERM": "xterm-256color", MARK: str(self.root), **more}

    def request(self, argv: Any, **fields: Any) -> dict[str, Any]:
        """A request to hold it, with a socket and a session directory of its own."""
        self.made += 1
        session = self.root / f"s{self.made}"
        session.mkdir()
        return {
            "do": "hold",
            "name": f"agent{self.made}",
            "socket": str(self.root / f"h{self.made}"),
            "session": str(session),
            "argv": argv,
            "env": self.env(),
            "cwd": str(self.root),
            **fields,
        }

    def hold(self, argv: list[str], **fields: Any) -> Holder:
        request = self.request(argv, **fields)
        reply = self.ask(request)
        assert reply["ok"], reply
        return self.holder(request, reply)

    def holder(self, request: dict[str, Any], reply: dict[str, Any]) -> Holder:
        return Holder(
            reply["pid"],
            reply["child"],
            Path(request["socket"]),
            Path(request["session"]),
            self.clients,
        )

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.process:
            self.end()
        end_marked(self.root)
        if self.process and self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.root)


@contextlib.contextmanager
def made_factory() -> Iterator[Factory]:
    """Not started yet."""
    factory = Factory(Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve())
    try:
        yield factory
    finally:
        factory.close()

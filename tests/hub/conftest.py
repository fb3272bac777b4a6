"""A home with a real hub, real holders and real programs, and nothing of it left at the end.

Every hub and every program of a home has BULLPEN_DIR=<root> in its environment, every factory
and holder has its socket in its command line: so all are found, also in sessions of their own,
and ended by pid. A test that leaves more than its hub, its factory and its holders' own
programs behind fails.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bullpen import marker
from bullpen.client import wire
from bullpen.client.hub import HubClient
from bullpen.client.start import start_hub
from bullpen.paths import HUB, Home, make_directories
from bullpen.sandboxes import limits
from tests import forked
from tests.conftest import BULLPEN, Ran, wait_until
from tests.holder.conftest import Client, alive, process_state

T = TypeVar("T")

forked.install()

SLEEP = ("/bin/sleep", "1000000")
# Says what it is told in argv[1] as its exit code, at once.
END = (sys.executable, "-I", "-S", "-c", "import sys; sys.exit(int(sys.argv[1]))")
# Counts aloud, a hundred times a second or so, for ever.
COUNT = """
import sys, time
number = 0
while True:
    number += 1
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    time.sleep(float(sys.argv[1]))
"""
# Ignores SIGTERM, and leaves a child in a session of its own that does so, too.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
print("READY", flush=True)
time.sleep(1000)
"""


def python(code: str, *words: str | Path) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *map(str, words))


def counter(seconds: float = 0.01) -> tuple[str, ...]:
    return python(COUNT, str(seconds))


class Pen:
    """One home and its hub."""

    def __init__(self, root: Path, person: Path, port: int | None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        root = root.resolve()
        make_directories(root)
        marker.create(root)
        if port is not None:
            (root / "config.yaml").write_text(f"port: {port}\nstop_grace: 5s\n")
        self.root = root
        self.home = Home(root)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(person),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        if "PYTHONPATH" in os.environ:
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.clients: list[Client] = []

    # ── the hub ──

    def start(self) -> int:
        """Start the hub, unless it answers; its pid."""
        if not self.answers():
            start_hub(self.home, self.env)
        return self.pid

    def answers(self) -> bool:
        try:
            wire.request(str(self.home.socket(HUB)), "GET", "/status", {}, b"", 5.0)
        except (wire.HubError, OSError):
            return False
        return True

    @property
    def pid(self) -> int:
        """Of the hub that was started last."""
        found = json.loads((self.root / "hub.json").read_text())
        return int(found["pid"])

    def kill_hub(self) -> int:
        """Kill -9, and wait until it is gone."""
        pid = self.pid
        kill(pid)
        return pid

    def hub_pids(self) -> set[int]:
        """Every living hub of this home."""
        return {pid for pid, what in self.processes().items() if what == "hub"}

    def lock_holders(self) -> set[int]:
        """Who has the lock that only a serving hub may have."""
        found = self.root.stat()
        wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return {int(words[4]) for words in lines if words[1] == "FLOCK" and words[5] == wanted}

    def client(self, *, start: bool = True) -> HubClient:
        return HubClient(self.home, start=start)

    def cli(
        self, *words: str | Path, cwd: Path | None = None, seconds: float = 120, **env: str
    ) -> Ran:
        """The installed command."""
        given = {**self.env, "BULLPEN_DIR": str(self.root), **env}
        done = forked.run([*map(str, (BULLPEN, *words))], cwd or self.root, given, b"", seconds)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ask(
        self, method: str, target: str, body: Any = None, token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """A request over the home's own socket, nothing tried twice: status and JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        if token:
            headers["authorization"] = f"Bearer {token}"
        path = str(self.home.socket(HUB))
        answer = wire.request(path, method, target, headers, data, 60.0)
        return answer.status, json.loads(answer.body or b"{}")

    # ── agents ──

    def launch(self, *words: str, **fields: Any) -> dict[str, Any]:
        """The body of a start."""
        given = {"cwd": str(self.root), "env": self.env, "run": uuid.uuid4().hex}
        return {**given, "words": list(words or SLEEP), **fields}

    def run(self, *words: str, **fields: Any) -> dict[str, Any]:
        """Start an agent; starts the hub if need be."""
        found: dict[str, Any] = self.client().post(
            "agents", body=self.launch(*words, **fields), again=True
        )
        return found

    def stop(self, name: str, grace: float = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.client().delete("agents", name, grace=grace)
        return found

    def agents(self) -> dict[str, dict[str, Any]]:
        found = self.client().get("agents")["agents"]
        return {agent["name"]: agent for agent in found}

    def state(self, name: str) -> str:
        """What `list` shows of it."""
        words: str = self.client().get("agents", name)["words"]
        return words

    def session(self, name: str) -> Path:
        return self.root / "sessions" / name

    def record(self, name: str, file: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.session(name) / file).read_text())
        return found

    def holder(self, name: str) -> int:
        return int(self.record(name, "holder.json")["pid"])

    def program(self, name: str) -> int:
        return int(self.record(name, "holder.json")["child"])

    def connect(self, name: str) -> Client:
        """A plain client of the agent's holder, greeted."""
        client = Client(self.home.socket(name))
        self.clients.append(client)
        assert client.next().type == "H"
        return client

    def log(self, name: str) -> bytes:
        return (self.session(name) / "output.log").read_bytes()

    # ── what is on disk ──

    def events(self, agent: str = "", kind: str = "") -> list[dict[str, Any]]:
        """Straight from the database, whether a hub runs or not."""
        path = self.root / "state.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT id, time, kind, agent, data FROM events ORDER BY id"
            ).fetchall()
        found = [
            {"id": row[0], "time": row[1], "kind": row[2], "agent": row[3], **json.loads(row[4])}
            for row in rows
        ]
        return [
            event
            for event in found
            if (not agent or event["agent"] == agent) and (not kind or event["kind"] == kind)
        ]

    def logged(self, message: str = "") -> list[dict[str, Any]]:
        """Lines of the hub's log."""
        lines = (self.root / "logs" / "hub.log").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [line for line in found if not message or line["message"] == message]

    # ── processes ──

    def processes(self) -> dict[int, str]:
        """Every living process of this home, and what it is."""
        variable = f"BULLPEN_DIR={self.root}".encode()
        factory = str(self.home.factory_socket).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if factory in words:
                    found[int(entry.name)] = "factory or holder"
                elif variable in (entry / "environ").read_bytes().split(b"\0"):
                    is_hub = b"bullpen.hub.main" in words or b"hub-script" in words
                    found[int(entry.name)] = "hub" if is_hub else _shown(words)
        return {pid: what for pid, what in found.items() if alive(pid)}

    def close(self) -> None:
        """End it all in order; what is left then should not have been there."""
        for client in self.clients:
            client.close()
        for pid in [pid for pid, what in self.processes().items() if what == "hub"]:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            wait_until(lambda pid=pid: not alive(pid))
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(_end_holder, (self.root / "sockets").glob("agent.*.sock")))
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            _say(self.home.factory_socket, b'{"do": "leave"}\n')
        left: dict[int, str] = {}

        def nothing_left() -> bool:
            left.clear()
            left.update(self.processes())
            return not left

        with contextlib.suppress(AssertionError):
            wait_until(nothing_left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        short = self.home.factory_socket.parent.parent
        if short.name.startswith("bullpen-"):
            shutil.rmtree(short, ignore_errors=True)
        assert not left, f"left over: {left}"


def _shown(words: list[bytes]) -> str:
    return b" ".join(words).decode(errors="replace")[:4000]


def _end_holder(path: Path) -> None:
    """Stop without grace, by the holder's own protocol; one that is dead is fine."""
    try:
        client = Client(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return
    try:
        pid = client.next().json["pid"]
        if process_state(pid) == "T":
            os.kill(pid, signal.SIGCONT)
        client.send("X", {"grace": 0})
        client.read_to_end(20)
        wait_until(lambda: not alive(pid))
    finally:
        client.close()


def _say(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(10)
        talk.connect(str(path))
        talk.sendall(line)
        with contextlib.suppress(ConnectionResetError):
            while talk.recv(4096):
                pass


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process of this test, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    wait_until(lambda: not alive(pid))


def together(*work: Callable[[], T]) -> list[T]:
    """All at the same time; their results."""
    gate = threading.Barrier(len(work))

    def begin(function: Callable[[], T]) -> T:
        gate.wait()
        return function()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(begin, work))


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port outside of those that hubs choose from, ours until the end.

    Bound and not listening: a hub of this test may listen there, again and again, and the
    kernel gives it to nobody who asks for any port.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@contextlib.contextmanager
def made_pen(root: Path | None = None, *, with_port: bool = True) -> Iterator[Pen]:
    base = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve()
    person = base / "person"
    person.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        port = stack.enter_context(reserved_port()) if with_port else None
        pen = Pen(root or base / "h", person, port)
        stack.callback(limits.sweep, pen.root, ())  # of agents that ran to the end
        stack.callback(pen.close)
        yield pen


@pytest.fixture
def pen() -> Iterator[Pen]:
    """A home of its own, whose hub is not started yet."""
    with made_pen() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Pen]:
    """One home with a running hub for all tests of a file that leave the hub alone."""
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def tidy(shared: Pen) -> Iterator[Pen]:
    """The shared home; the agents of the test are ended after it."""
    yield shared
    running = [name for name, agent in shared.agents().items() if agent["running"]]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(shared.stop, running))


class Listener:
    """Follows the event stream over the home's socket, and resumes wherever it was cut off."""

    def __init__(self, pen: Pen, after: int = 0) -> None:
        self.pen = pen
        self.after = after
        self.events: list[dict[str, Any]] = []
        self.cuts = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except (wire.HubError, OSError):
                self._stop.wait(0.01)
            self.cuts += 1

    def _read(self) -> None:
        headers = {"last-event-id": str(self.after)}
        path = str(self.pen.home.socket(HUB))
        rest = b""
        with wire.stream(path, "GET", "/events/stream", headers, timeout=0.5) as answer:
            assert answer.status == 200, answer.status
            for piece in answer:
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())
                if self._stop.is_set():
                    return

    def _take(self, block: str) -> None:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        assert fields.get("event") != "reset", block
        if "id" in fields:
            self.after = int(fields["id"])
        if "data" in fields:
            self.events.append(json.loads(fields["data"]))


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond: /proc/<pid>/stat counts hundredths."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def quiet_for(seconds: float) -> None:
    """Let time pass, for measuring what happens meanwhile: there is no condition to wait for."""
    threading.Event().wait(seconds)

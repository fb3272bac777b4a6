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
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bullpen.client.start import start_hub
from bullpen.files import write_atomically
from bullpen.home import marker
from bullpen.home.paths import HUB, Home, make_directories
from bullpen.hot import wire
from bullpen.sandboxes import limits
from tests import forked
from tests.commands import BULLPEN, Ran
from tests.holder.client import Client, ClosedError
from tests.hub.json_hub import JsonHub
from tests.hub.programs import SLEEP
from tests.ports import reserved_port
from tests.processes import alive, kill, parent_of, process_state
from tests.waiting import wait_until


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
        self.ports = contextlib.ExitStack()

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
        """Kill -9, and wait until it is gone. If it is gone, its number may be another's."""
        pid = self.pid
        if self._is_own(pid):
            kill(pid)
        return pid

    def hub_pids(self) -> set[int]:
        """Every living hub of this home. What a hub starts looks like one until it is executed."""
        hubs = {pid for pid, what in self.processes().items() if what == "hub"}
        return {pid for pid in hubs if parent_of(pid) not in hubs}

    def lock_holders(self) -> set[int]:
        """Who has the lock that only a serving hub may have."""
        found = self.root.stat()
        wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return {int(words[4]) for words in lines if words[1] == "FLOCK" and words[5] == wanted}

    def client(self, *, start: bool = True) -> JsonHub:
        return JsonHub(self.home, start=start)

    def cli(
        self,
        *words: str | Path,
        cwd: Path | None = None,
        seconds: float = 120,
        stdin: bytes = b"",
        **env: str,
    ) -> Ran:
        """The installed command."""
        given = {**self.env, "BULLPEN_DIR": str(self.root), **env}
        done = forked.run([*map(str, (BULLPEN, *words))], cwd or self.root, given, stdin, seconds)
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

    def free_port(self) -> int:
        """Nobody else's as long as this home is there."""
        return self.ports.enter_context(reserved_port())

    # ── agents ──

    def role(self, name: str, **fields: Any) -> None:
        """A role file. (YAML is a superset of JSON.) In one step: an agent may be reading it."""
        path = self.root / "roles" / f"{name}.yaml"
        write_atomically(path, json.dumps({"name": name, **fields}))

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
        """Lines of the hub's log; not one that is being written."""
        lines = (self.root / "logs" / "hub.log").read_text().split("\n")[:-1]
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

    def _is_own(self, pid: int) -> bool:
        """Whether it was started for this home."""
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return f"BULLPEN_DIR={self.root}".encode() in variables
        return False

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
        # One that leaves by itself in this moment does not answer any more.
        with contextlib.suppress(ClosedError, ConnectionResetError, BrokenPipeError):
            pid = client.next().json["pid"]
            if process_state(pid) == "T":
                os.kill(pid, signal.SIGCONT)
            client.send("X", {"grace": 0})
            client.read_to_end(60)
            wait_until(lambda: not alive(pid))
    finally:
        client.close()


def _say(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(60)
        talk.connect(str(path))
        talk.sendall(line)
        with contextlib.suppress(ConnectionResetError):
            while talk.recv(4096):
                pass


@contextlib.contextmanager
def made_pen(root: Path | None = None, *, with_port: bool = True) -> Iterator[Pen]:
    base = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve()
    person = base / "person"
    person.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        port = stack.enter_context(reserved_port()) if with_port else None
        pen = Pen(root or base / "h", person, port)
        stack.enter_context(pen.ports)
        stack.callback(limits.remove_ended, pen.root, ())  # of agents that ran to the end
        stack.callback(pen.close)
        yield pen


def factory_pid(pen: Pen) -> Any:
    with socket.socket(socket.AF_UNIX) as talk, contextlib.suppress(OSError):
        talk.settimeout(5)
        talk.connect(str(pen.home.factory_socket))
        talk.sendall(b'{"do": "ping"}\n')
        return json.loads(talk.makefile().readline() or "{}").get("pid")
    return None


def living_factory(pen: Pen) -> int:
    """The one that answers, as soon as one does."""
    found: list[int] = []

    def answers() -> bool:
        pid = factory_pid(pen)
        found.extend([pid] if pid else [])
        return bool(found)

    wait_until(answers)
    return found[0]


def change_hub(pen: Pen, code: str) -> None:
    """Start a hub that runs that first, as later ones of this home do: a time that is far too long
    there shows that nobody waits for it, on a busy machine as well."""
    assert not pen.answers(), "there is a hub already, which stays as it is"
    place = pen.root.parent / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(code + "\n")
    pen.env["PYTHONPATH"] = str(place)
    pen.start()

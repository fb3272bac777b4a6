"""The processes of one home, found and ended without its hub: the hub itself, agents' holders, the
factory, registered components.

A process is ours by what this home's own files say of it, by its start time, and by the command
line that only this home's holders have, or by the directory that it holds locked, which moves with
the home: a pid alone proves nothing, and the files of a copied home speak of another's processes.
Nothing here ends what it cannot prove.
"""

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from bullpen import proc
from bullpen.client import holder
from bullpen.errors import BullpenError
from bullpen.files import read_object, write_atomically
from bullpen.home.hub_file import HubFile, read_hub_file
from bullpen.home.paths import HUB, KILLED, Home

GRACE_SECONDS = 5.0
SETTLE_SECONDS = 5.0  # for the kernel, after SIGKILL; for a holder, after its program's end
LOOK_AGAIN_SECONDS = 0.02
AT_ONCE = 32
# Of a terminal, and of the runs of tasks. Not wherever one lies: agents work in there, too.
RECORDS = ("*/holder.json", "*/tasks/*/holder.json", "*/tasks/*/*/holder.json")
ROUNDS = 3  # who is found only after the hub has gone was being started by it

What = Literal["hub", "agent", "component", "factory"]
Ended = Literal["ended", "killed", "left"]


@dataclass(frozen=True)
class Process:
    """One of them. An agent's is its holder; `child` is then the program."""

    what: What
    name: str
    pid: int
    start_time: str
    child: tuple[int, str] | None = None
    record: Path | None = None  # where its holder wrote that

    @property
    def is_alive(self) -> bool:
        return proc.start_time(self.pid) == self.start_time


@dataclass(frozen=True)
class RegisteredComponent:
    """A component as the hub's register has it."""

    name: str
    kind: str
    url: str
    version: str
    pid: int
    start_time: str

    @property
    def port(self) -> int | None:
        return urlsplit(self.url).port


# ── finding ──


def find_hub(home: Home) -> Process | None:
    """The hub that serves the home, whether it answers or not."""
    hub_file = read_hub_file(home)
    is_ours = _is_this_homes(home, hub_file) or _has_open(hub_file.pid, home.root)
    if not is_ours or not hub_file.is_alive:
        return None
    return Process("hub", "hub", hub_file.pid, hub_file.start_time)


def hub_port(home: Home) -> int | None:
    """Where it serves besides its socket."""
    port = read_hub_file(home).port
    return port if 0 < port < 1 << 16 else None


def registered(home: Home) -> list[RegisteredComponent]:
    """The register as the last hub left it in its database; those that live."""
    rows = read_rows(
        home, "SELECT name, kind, url, version, pid, start_time FROM components ORDER BY name"
    )
    known = [RegisteredComponent(*row) for row in rows]
    return [one for one in known if proc.start_time(one.pid) == one.start_time]


def read_rows(home: Home, query: str) -> list[sqlite3.Row]:
    """What the last hub left in its database; nothing of a copied home, which tells of another."""
    path = home.root / "state.db"
    if not path.exists() or not _is_this_homes(home, read_hub_file(home)):
        return []
    address = f"file:{quote(str(path))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1.0)) as database:
            database.row_factory = sqlite3.Row
            return database.execute(query).fetchall()
    except sqlite3.Error:
        return []  # damaged, or of another version: then nothing is known


def find_agents(home: Home) -> list[Process]:
    """The holders of this home that live, by the records that they left in the sessions."""
    mark = str(home.factory_socket)
    processes = []
    paths = (path for pattern in RECORDS for path in home.sessions.glob(pattern))
    for path in sorted(paths):
        name = path.relative_to(home.sessions).parts[0]
        record = read_object(path)
        pid, began = record.get("pid"), record.get("start_time")
        if not isinstance(pid, int) or not isinstance(began, str):
            continue
        child, born = record.get("child"), record.get("child_start_time")
        program = (child, born) if isinstance(child, int) and isinstance(born, str) else None
        process = Process("agent", name, pid, began, program, path)
        if process.is_alive and (_is_forked_for(pid, mark) or _has_open(pid, path.parent)):
            processes.append(process)
    return processes


def find_factories(home: Home, agents: Iterable[Process]) -> list[Process]:
    """Whatever else was started with this home's command line: the factory; or a holder that has
    not written yet who it is."""
    known = {agent.pid for agent in agents}
    mark = str(home.factory_socket)
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid not in known and _is_forked_for(pid, mark):
            began = proc.start_time(pid)
            if began is not None:
                processes.append(Process("factory", "factory", pid, began))
    return processes


def _is_forked_for(pid: int, socket: str) -> bool:
    try:
        is_mine = Path(f"/proc/{pid}").stat().st_uid == os.getuid()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    is_factory = b"-c" in words and any(b"bullpen.holder.factory" in word for word in words)
    return is_mine and is_factory and words[-1] == os.fsencode(socket)


def _has_open(pid: int, directory: Path) -> bool:
    """Whether a process of this user has that directory open, as who has locked it does. By what
    the kernel says, so it is the same one wherever it was moved to, and no copy."""
    with contextlib.suppress(OSError):
        ours = directory.stat()
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return False
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(entry.stat(), ours):
                    return True
    return False


def _is_this_homes(home: Home, hub_file: HubFile) -> bool:
    """Whether `hub.json` was written here; that of a copy tells of the original."""
    return hub_file.socket == str(home.socket(HUB))


# ── ending ──


def end_all(home: Home, components: Iterable[Process]) -> list[tuple[Process, Ended]]:
    """End everything of the home: SIGTERM, after five seconds SIGKILL. The hub goes first: it
    would start again what ends."""
    results: list[tuple[Process, Ended]] = []
    others = list(components)
    for _ in range(ROUNDS):
        hub = find_hub(home)
        if hub is not None:
            results.append((hub, end(hub)))
        _note_killed(home)
        agents = find_agents(home)
        rest = [*others, *agents, *find_factories(home, agents)]
        if hub is None and not rest:
            break
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ended = pool.map(lambda one: (one, _end_one(home, one)), rest)
            results += list(ended)
        others = []
    return results


def _note_killed(home: Home) -> None:
    """Else the next hub would go on with task agents, which have no process, and take the end of
    the others for their own."""
    for path in home.sessions.glob("*/session.json"):
        with contextlib.suppress(OSError):
            write_atomically(path.with_name(KILLED), str(read_object(path).get("run", "")), 0o600)


def _end_one(home: Home, process: Process) -> Ended:
    return _end_agent(home, process) if process.what == "agent" else end(process)


def end(process: Process, grace: float = GRACE_SECONDS) -> Ended:
    """SIGTERM, and SIGKILL after the grace; returns when it is gone."""
    _signal(process, signal.SIGTERM)
    if _is_gone_within(process, grace):
        return "ended"
    _signal(process, signal.SIGKILL)
    return "killed" if _is_gone_within(process, SETTLE_SECONDS) else "left"


def _end_agent(home: Home, process: Process) -> Ended:
    """By its holder, which ends everything that its program has started, and leaves a record; if
    the holder does not do so, with the holder."""
    if process.record is not None:
        with contextlib.suppress(OSError):  # else the next hub would try the task again
            tag = str(read_object(process.record).get("tag", ""))
            process.record.with_name(KILLED).write_text(tag)
    with contextlib.suppress(BullpenError, holder.HolderGoneError, OSError, ValueError):
        with holder.connect(home, process.name) as connection:
            if connection.greeting.get("pid") == process.pid:
                connection.send_fields(b"X", {"grace": GRACE_SECONDS})
                connection.wait_for(b"E", GRACE_SECONDS + SETTLE_SECONDS)
        if _is_gone_within(process, SETTLE_SECONDS):
            return "ended"
    if not process.is_alive:
        return "ended"
    _signal(process, signal.SIGKILL)
    is_gone = _is_gone_within(process, SETTLE_SECONDS)
    if process.child is not None:  # without Linux's calls it may go on without its holder
        program = Process("agent", process.name, *process.child)
        _signal(program, signal.SIGKILL)
        is_gone = _is_gone_within(program, SETTLE_SECONDS) and is_gone
    return "killed" if is_gone else "left"


def _signal(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.is_alive:
            os.kill(process.pid, number)


def _is_gone_within(process: Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.is_alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_AGAIN_SECONDS)
    return True


def is_gone_within(pid: int, start_time: str | None, seconds: float) -> bool:
    """Wait for the end of a process that was told to leave."""
    return start_time is None or _is_gone_within(Process("component", "", pid, start_time), seconds)

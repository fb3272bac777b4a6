"""What `discover`, `shutdown` and `kill` share: the components of this machine, which of them are
this home's, and asking one of those to leave.

What a scan finds is shown and never commanded: any program, an agent too, may listen on a port and
say that it is of this home. This home's components are those that listen at its sockets.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import proc
from bullpen.client import processes
from bullpen.client.components import list_components
from bullpen.client.hub import Hub
from bullpen.component import ask, mdns, own_socket
from bullpen.component.discovery import DiscoveredComponent, scan
from bullpen.component.ports import LOOPBACK
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import claimed_ports
from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from bullpen.home.supervised import list_supervisors
from bullpen.text import seconds_text

HUB_SECONDS = 2.0
AT_ONCE = 32
LEAVE_SECONDS = 30.0  # besides the time it was given: to cancel, and to put things down


@dataclass(frozen=True)
class ListedComponent:
    """A component, whether the hub's register has it, and whether this home has that port."""

    component: DiscoveredComponent
    is_registered: bool = False
    has_own_port: bool = False

    def whose(self, home_id: str) -> str:
        """As people read it. Anybody can say that it is of this home."""
        if not self.component.is_own(home_id):
            return "foreign"
        return "own" if self.is_registered or self.has_own_port else "says own"


def look(home: Home, settings: Settings) -> list[ListedComponent]:
    """Everything that serves on this machine, by type and name; this home's first. Also outside of
    the range: what this home's files give a port, and what the hub was told of."""
    known = _registered(home)
    named = {port for _, port in claimed_ports(home) if 0 < port < 1 << 16}
    registered_ports = {one.port for one in known if one.port}
    own_ports = {*_hub_port(home), *named}
    components = scan({*settings.discovery.ports, *own_ports, *registered_ports})
    components += _announced(settings, components)
    home_id = home.id
    # By their port, too: anybody can say that it is one of ours, and must not hide that one.
    seen = {
        (one.key, one.port): ListedComponent(one, has_own_port=one.port in own_ports)
        for one in components
    }
    for one in known:
        silent = DiscoveredComponent(
            one.port or 0, one.kind, one.name, one.version, None, (), home_id
        )
        there = seen.get((silent.key, silent.port), ListedComponent(silent))
        seen[silent.key, silent.port] = replace(there, is_registered=True)
    return sorted(
        seen.values(),
        key=lambda one: (not one.component.is_own(home_id), one.component.type, one.component.name),
    )


def _registered(home: Home) -> list[processes.RegisteredComponent]:
    """What the hub says; while it is away or silent, what it has written down."""
    hub = Hub(home, start=False, seconds=HUB_SECONDS)
    try:
        known = hub.do(list_components())
    except (BullpenError, OSError):
        return processes.registered(home)
    return [
        processes.RegisteredComponent(
            one.name, one.kind, one.url, one.version, one.pid, one.start_time
        )
        for one in known
    ]


def _announced(
    settings: Settings, answering: Iterable[DiscoveredComponent]
) -> list[DiscoveredComponent]:
    """Who announces itself and was not found by its port; asked for its state if it is here."""
    if settings.discovery.method != "mdns":
        return []
    known = {one.key for one in answering}
    heard = [one for one in mdns.find() if one.key not in known]
    here = scan({one.port for one in heard if one.address == LOOPBACK})
    answered = {one.key for one in here}
    return [*here, *(one for one in heard if one.key not in answered)]


def _hub_port(home: Home) -> set[int]:
    hub = processes.find_hub(home)
    port = processes.hub_port(home)
    return {port} if hub is not None and port is not None else set()


# ── this home's own, by its sockets ──


@dataclass(frozen=True)
class OwnComponent:
    """A director, view or bridge of this home, as it says by its socket in the home."""

    socket: Path
    type: str
    name: str
    pid: int
    port: int | None


def own_components(home: Home) -> list[OwnComponent]:
    """Those that can be commanded, by name; one that does not answer by what the register has."""
    known = {one.pid: one for one in _registered(home)}
    sockets = _own_sockets(home)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        own = pool.map(lambda pid: _ask_who(sockets[pid], pid, known.get(pid)), sockets)
        return sorted(own, key=lambda one: (one.type, one.name, one.pid))


def component_processes(home: Home) -> list[processes.Process]:
    """The components of this home, for `kill`: those that would start others again, those that
    are registered, and those that listen at a socket of the home."""
    registered = processes.registered(home)
    above = [
        processes.Process("component", directory.name, supervisor.pid, supervisor.start_time)
        for directory, supervisor in list_supervisors(home)
    ]
    own = {
        one.pid: processes.Process("component", one.name, one.pid, one.start_time)
        for one in registered
    }
    for one in own_components(home):
        began = proc.start_time(one.pid)
        if began is not None and one.pid not in own:
            own[one.pid] = processes.Process("component", one.name, one.pid, began)
    return [*above, *own.values()]


def _own_sockets(home: Home) -> dict[int, Path]:
    sockets = own_socket.list_sockets(home)
    return {pid: path for pid, path in sockets.items() if own_socket.is_listened_to(path, pid)}


def _ask_who(path: Path, pid: int, known: processes.RegisteredComponent | None) -> OwnComponent:
    kind, name, port = "component", f"pid {pid}", None
    if known is not None:
        kind, name, port = known.kind, known.name, known.port
    try:
        shown = ask.get_status(path)
        kind, name, port = shown.type, shown.name, port or shown.config.get("port")
    except (ask.NoAnswerError, BullpenError):
        pass  # a stopped one is commanded all the same, and then says so
    return OwnComponent(path, kind, name, pid, port)


@dataclass(frozen=True)
class Departure:
    """What came of telling somebody to leave; `pid` of a process that has left."""

    type: str
    name: str
    result: str
    pid: int | None = None

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if value is not None}


def ask_to_leave(
    socket: Path, type: str, name: str, *, timeout: float | None, force: bool
) -> Departure:
    """Tell who listens at that socket of this home to leave, and wait until it has."""
    try:
        leaving = ask.shut_down(socket, timeout_seconds=timeout, force=force)
    except ask.NoAnswerError as error:
        raise BullpenError(
            f"{name} does not answer", hint="bullpen kill --all", kind=Kind.UNAVAILABLE
        ) from error
    except BullpenError as error:
        raise _refused(name, error) from error
    pid, drain = leaving.pid, leaving.drain_timeout
    if not processes.is_gone_within(pid, proc.start_time(pid), drain + LEAVE_SECONDS):
        raise BullpenError(
            f"{name} (pid {pid}) is told to leave and has not left after {seconds_text(drain)}",
            hint="bullpen kill --all",
            kind=Kind.UNAVAILABLE,
        )
    return Departure(type, name, "left", pid)


def _refused(name: str, error: BullpenError) -> BullpenError:
    if error.kind is Kind.CONFLICT and "task_id" in error.details:
        return in_progress(name, str(error.details["task_id"]))
    return BullpenError(f"{name} refused: {error.message}", kind=Kind.COMMAND_FAILED)


def in_progress(name: str, task: str) -> BullpenError:
    """It is not interrupted unless a person says so."""
    return BullpenError(
        f"{name} works on task {task}",
        hint="--timeout DURATION waits for it, --force cancels it after that",
        kind=Kind.CONFLICT,
    )

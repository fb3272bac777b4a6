"""What `discover`, `shutdown` and `kill` share: the components of this machine, which of them are
this home's, and asking one of those to leave.

A component of another home is shown and never commanded. That one says it is ours is not enough
either: the token goes only to ports that this user's own processes listen on (`ask.request`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bullpen import proc
from bullpen.agent_files import claimed_ports
from bullpen.client import components as register
from bullpen.component import ask, mdns
from bullpen.component.discovery import Found, scan
from bullpen.component.ports import LOOPBACK
from bullpen.errors import BullpenError, Kind
from bullpen.model.component import DRAIN_SECONDS
from bullpen.paths import HUB, Home
from bullpen.settings import Settings, load_settings

HUB_SECONDS = 2.0
LEAVE_SECONDS = 30.0  # besides the time it was given: to cancel, and to put things down


@dataclass(frozen=True)
class Seen:
    """A component, and whether the hub's register has it."""

    found: Found
    is_registered: bool = False


def look(home: Home, settings: Settings) -> list[Seen]:
    """Everything that serves on this machine, by type and name; this home's first. Also outside of
    the range: what this home's files give a port, and what the hub was told of."""
    known = _registered(home)
    named = {port for _, port in claimed_ports(home) if 0 < port < 1 << 16}
    told = {one.port for one in known if one.port}
    found = scan({*settings.discovery.ports, *_hub_port(home), *named, *told})
    found += _announced(settings, found)
    home_id = home.id
    # By their port, too: anybody can say that it is one of ours, and must not hide that one.
    seen = {(one.key, one.port): Seen(one) for one in found}
    for one in known:
        silent = Found(one.port or 0, one.kind, one.name, one.version, None, (), home_id)
        there = seen.get((silent.key, silent.port), Seen(silent))
        seen[silent.key, silent.port] = replace(there, is_registered=True)
    return sorted(
        seen.values(),
        key=lambda one: (not one.found.is_own(home_id), one.found.type, one.found.name),
    )


def settings_or_defaults(home: Home) -> Settings:
    """For who ends things: a mistake in a file is no reason to let them run."""
    try:
        return load_settings(home.config_file)
    except BullpenError:
        return Settings()


def _registered(home: Home) -> list[register.Registered]:
    """What the hub says; while it is away or silent, what it has written down."""
    try:
        status, known = ask.request(home.socket(HUB), "GET", "/components", seconds=HUB_SECONDS)
    except ask.NoAnswerError:
        status, known = 0, []
    if status != 200:
        return register.registered(home)
    fields = register.Registered.__dataclass_fields__
    return [register.Registered(**{key: one[key] for key in fields}) for one in known]


def _announced(settings: Settings, found: Iterable[Found]) -> list[Found]:
    """Who announces itself and was not found by its port; asked for its state if it is here."""
    if settings.discovery.method != "mdns":
        return []
    known = {one.key for one in found}
    heard = [one for one in mdns.find() if one.key not in known]
    here = scan({one.port for one in heard if one.address == LOOPBACK})
    answered = {one.key for one in here}
    return [*here, *(one for one in heard if one.key not in answered)]


def _hub_port(home: Home) -> set[int]:
    hub = register.find_hub(home)
    port = register.hub_port(home)
    return {port} if hub is not None and port is not None else set()


def processes(home: Home) -> list[register.Process]:
    """The components of this home, for `kill`: registered ones, and others that say which process
    they are to who has the token."""
    known = {one.pid for one in register.registered(home)}
    found = [
        register.Process("component", one.name, one.pid, one.start_time)
        for one in register.registered(home)
    ]
    for seen in look(home, settings_or_defaults(home)):
        one = seen.found
        is_other = one.type not in ("hub", "agent") and not seen.is_registered
        if is_other and one.state is not None and one.is_own(home.id):
            pid = _pid_of(home, one)
            began = proc.start_time(pid) if pid else None
            if pid and began and pid not in known:
                found.append(register.Process("component", one.name, pid, began))
    return found


def _pid_of(home: Home, one: Found) -> int | None:
    try:
        status, answer = ask.request(one.port, "GET", "/status", token=ask.owner_token(home))
    except (ask.NoAnswerError, BullpenError):
        return None
    pid = answer.get("pid") if status == 200 and isinstance(answer, dict) else None
    return pid if isinstance(pid, int) and pid > 1 else None


def ask_to_leave(
    home: Home, where: ask.Where, name: str, timeout: float | None, force: bool, waits: bool = True
) -> dict[str, Any]:
    """Tell a component of this home to leave, and wait until it has. An agent's port is the
    hub's: its process stays."""
    asked: dict[str, Any] = {"force": True} if force else {}
    if timeout is not None:
        asked["timeout_seconds"] = timeout
    token = ask.owner_token(home) if isinstance(where, int) else ""
    try:
        status, answer = ask.request(where, "POST", "/shutdown", asked or None, token=token)
    except ask.NoAnswerError as error:
        raise BullpenError(
            f"{name} does not answer", hint="bullpen kill --all", kind=Kind.UNAVAILABLE
        ) from error
    if status != 202:
        raise _refused(name, status, answer)
    if not waits:
        return {"name": name, "result": "leaves"}
    pid, drain = int(answer["pid"]), float(answer.get("drain_timeout", DRAIN_SECONDS))
    if not register.is_gone_within(pid, proc.start_time(pid), drain + LEAVE_SECONDS):
        raise BullpenError(
            f"{name} (pid {pid}) is told to leave and has not left after {drain:g} s",
            hint="bullpen kill --all",
            kind=Kind.UNAVAILABLE,
        )
    return {"name": name, "pid": pid, "result": "left"}


def _refused(name: str, status: int, answer: Any) -> BullpenError:
    said = answer if isinstance(answer, dict) else {}
    if said.get("error") == "task_in_progress":
        return in_progress(name, str(said.get("task_id")))
    return BullpenError(
        f"{name} refused with status {status}: {said.get('message', '')}",
        kind=Kind.COMMAND_FAILED,
    )


def in_progress(name: str, task: str) -> BullpenError:
    """It is not interrupted unless a person says so."""
    return BullpenError(
        f"{name} works on task {task}",
        hint="--timeout DURATION waits for it, --force cancels it after that",
        kind=Kind.CONFLICT,
    )

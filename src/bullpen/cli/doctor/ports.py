"""The TCP ports that the files of a home ask for: whether they can be had, and who has them."""

import errno
import json
import os
import socket
from dataclasses import dataclass
from typing import Any

from bullpen import proc
from bullpen.agent_files import claimed_ports
from bullpen.cli.doctor.check import Check
from bullpen.component import discovery, ports
from bullpen.errors import BullpenError
from bullpen.paths import Home
from bullpen.settings import load_settings


@dataclass(frozen=True)
class Claim:
    """A port that something of the home wants; `file` is where to choose another."""

    port: int
    name: str
    file: str


def check_ports(home: Home) -> Check:
    """The hub's, those of agents and directors, and how many are left to choose from."""
    try:
        searched = load_settings(home.config_file).discovery.ports
    except BullpenError as error:
        return Check("fail", "ports", error.message.splitlines()[0], "bullpen validate --all")
    hub = _hub_file(home)
    claims = _claims(home, hub)
    problem = _find_double(claims) or _find_taken(home, claims, hub)
    if problem:
        return problem
    free = sum(_trouble(port) is None for port in searched)
    names = [f"{claim.name} {claim.port}" for claim in claims]
    left = f"{free} of {len(searched)} free from {searched[0]} to {searched[-1]}"
    text = ", ".join([*names, left])
    if not free:
        fix = "end what you do not need, or choose another discovery.port_range in config.yaml"
        has_hub = any(claim.name == "hub" for claim in claims)
        return Check("warn" if has_hub else "fail", "ports", text, fix)
    return Check("ok", "ports", text)


def _claims(home: Home, hub: dict[str, Any]) -> list[Claim]:
    found = []
    for path, port in claimed_ports(home):
        is_hub = path == home.config_file
        found.append(Claim(port, "hub" if is_hub else path.stem, str(path.relative_to(home.root))))
    kept = hub.get("port")
    if isinstance(kept, int) and all(claim.name != "hub" for claim in found):
        found.insert(0, Claim(kept, "hub", "config.yaml"))
    return found


def _find_double(claims: list[Claim]) -> Check | None:
    for number, claim in enumerate(claims):
        for other in claims[:number]:
            if other.port == claim.port:
                text = f"{claim.port} is claimed twice: {other.name} and {claim.name}"
                return Check("fail", "ports", text, f"choose another: port in {claim.file}")
    return None


def _find_taken(home: Home, claims: list[Claim], hub: dict[str, Any]) -> Check | None:
    """The first that we could not listen on, and that none of ours listens on."""
    troubles = {claim.port: _trouble(claim.port) for claim in claims}
    taken = [port for port, trouble in troubles.items() if trouble == errno.EADDRINUSE]
    # Anything can say that it is ours; nothing of another user is.
    said = {one.port for one in discovery.scan(taken) if one.is_own(home.id)}
    for claim in claims:
        trouble = troubles[claim.port]
        if trouble is None or (claim.port in said and ports.is_ours(claim.port)):
            continue
        fix = f"choose another: port in {claim.file}"
        if trouble != errno.EADDRINUSE:
            text = f"{claim.port} of {claim.name} cannot be had: {os.strerror(trouble)}"
            return Check("fail", "ports", text, fix)
        owner = ports.owner_of(claim.port)
        if owner and owner.startswith(f"pid {_living_pid(hub)} "):
            continue  # our hub, too busy to answer
        by = owner or "another user's program"
        text = f"{claim.port} of {claim.name} is taken by {by}"
        return Check("fail", "ports", text, f"end it, or {fix}")
    return None


def _trouble(port: int) -> int | None:
    """Why nobody could listen there now. Does not listen, so nobody is kept from it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ports.LOOPBACK, port))
        except OSError as error:
            return error.errno or errno.EADDRINUSE
        except OverflowError:  # no port at all: `validate` says so
            return errno.EADDRNOTAVAIL
    return None


def _hub_file(home: Home) -> dict[str, Any]:
    """Where the hub of this machine is or was."""
    try:
        found = json.loads((home.root / "hub.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("host") == socket.gethostname() else {}


def _living_pid(hub: dict[str, Any]) -> int | None:
    pid, began = hub.get("pid"), hub.get("start_time")
    is_alive = isinstance(pid, int) and bool(began) and proc.start_time(pid) == began
    return pid if is_alive else None

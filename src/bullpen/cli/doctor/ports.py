"""The TCP ports that the files of a home ask for: whether they can be had, and who has them."""

import errno
import os
import socket
from dataclasses import dataclass

from bullpen.cli.doctor.check import Check
from bullpen.client.processes import find_agents, find_factories
from bullpen.component import discovery, ports
from bullpen.errors import BullpenError
from bullpen.home.agent_files import claimed_ports
from bullpen.home.hub_file import HubFile, read_hub_file
from bullpen.home.paths import Home
from bullpen.home.settings import load_settings


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


def _claims(home: Home, hub: HubFile) -> list[Claim]:
    claims = []
    for path, port in claimed_ports(home):
        is_hub = path == home.config_file
        claims.append(Claim(port, "hub" if is_hub else path.stem, str(path.relative_to(home.root))))
    if hub.port and all(claim.name != "hub" for claim in claims):
        claims.insert(0, Claim(hub.port, "hub", "config.yaml"))
    return claims


def _find_double(claims: list[Claim]) -> Check | None:
    for number, claim in enumerate(claims):
        for other in claims[:number]:
            if other.port == claim.port:
                text = f"{claim.port} is claimed twice: {other.name} and {claim.name}"
                return Check("fail", "ports", text, f"choose another: port in {claim.file}")
    return None


def _find_taken(home: Home, claims: list[Claim], hub: HubFile) -> Check | None:
    """The first that we could not listen on, and that none of ours listens on."""
    troubles = {claim.port: _trouble(claim.port) for claim in claims}
    taken = [port for port, trouble in troubles.items() if trouble == errno.EADDRINUSE]
    # Anything can say that it is ours; nothing of another user is.
    own = {one.port for one in discovery.scan(taken) if one.is_own(home.id)}
    for claim in claims:
        trouble = troubles[claim.port]
        if trouble is None or (claim.port in own and ports.is_ours(claim.port)):
            continue
        fix = f"choose another: port in {claim.file}"
        if trouble != errno.EADDRINUSE:
            text = f"{claim.port} of {claim.name} cannot be had: {os.strerror(trouble)}"
            return Check("fail", "ports", text, fix)
        if not _own_pids(home, hub).isdisjoint(ports.owners_of(claim.port)):
            continue  # our hub, too busy to answer; or what keeps its ports while it is away
        by = ports.owner_of(claim.port) or "another user's program"
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


def _hub_file(home: Home) -> HubFile:
    """Where the hub of this machine is or was."""
    hub_file = read_hub_file(home)
    return hub_file if hub_file.is_of_this_machine else HubFile()


def _own_pids(home: Home, hub: HubFile) -> set[int]:
    """The home's hub, if it lives, its factory and its holders."""
    agents = find_agents(home)
    pids = {process.pid for process in (*agents, *find_factories(home, agents))}
    if hub.is_alive:
        pids.add(hub.pid)
    return pids

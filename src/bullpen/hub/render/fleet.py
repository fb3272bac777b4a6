"""The machines of a fleet and their agents: tables. Pure."""

from bullpen.hub.render.words import age
from bullpen.model.fleet import FleetShown, Host
from bullpen.table import lay_out
from bullpen.text import printable

ALONE = "this machine is in no fleet · bullpen fleet join FILE --url nats://HOST:4222"
HOST_NAMES = ("HOST", "STATE", "AGENTS", "LABELS", "VERSION")
AGENT_NAMES = ("NAME", "STATE", "FOR", "ROLE")


def hosts_text(shown: FleetShown, now: float, columns: int = 0) -> str:
    """`bullpen fleet status`."""
    if shown.link == "none":
        return ALONE + "\n"
    rows = [HOST_NAMES, *(_host(host, shown.name, now) for host in shown.hosts)]
    table = lay_out(HOST_NAMES, rows, columns, drop=("VERSION", "LABELS"), cut=("LABELS",))
    return "\n".join([_link(shown, now), *(table if shown.hosts else ())]) + "\n"


def agents_text(shown: FleetShown, now: float, columns: int = 0) -> str:
    """`bullpen list --fleet`: agents of hosts that can be reached, and who cannot be."""
    if shown.link == "none":
        return ALONE + "\n"
    rows = [
        (
            printable(f"{host.state.name}/{agent.name}"),
            printable(agent.words),
            age(now - agent.since),
            printable(agent.role),
        )
        for host in shown.hosts
        if host.reachable
        for agent in host.state.agents
    ]
    lines = lay_out(AGENT_NAMES, [AGENT_NAMES, *rows], columns, drop=("ROLE", "FOR"))
    lines = lines if rows else ["no agents"]
    if shown.link != "connected" or shown.why:
        lines.append(_link(shown, now))
    lines += [
        f"{printable(host.state.name)} cannot be reached · {_last_known(host, now)}"
        for host in shown.hosts
        if not host.reachable
    ]
    return "\n".join(lines) + "\n"


def _link(shown: FleetShown, now: float) -> str:
    since = f" for {age(now - shown.since)}" if shown.since is not None else ""
    why = f": {printable(shown.why)}" if shown.why else ""
    alone = "" if shown.link == "connected" else " · this machine goes on by itself"
    state = {"refused": "not connected", "away": "not connected"}.get(shown.link, shown.link)
    return f"{shown.name} is {state} to {printable(shown.url)}{since}{why}{alone}"


def _host(host: Host, own: str, now: float) -> tuple[str, ...]:
    state = host.state
    labels = ", ".join(f"{key}={value}" for key, value in sorted(state.labels.items()))
    is_own = " (this one)" if state.name == own else ""
    reached = "reachable" if host.reachable else f"unreachable · {_last_known(host, now)}"
    return (
        printable(state.name) + is_own,
        reached,
        f"{state.running} running",
        printable(labels),
        printable(state.version),
    )


def _last_known(host: Host, now: float) -> str:
    seconds = max(0.0, now - host.last_heard)
    return f"last heard: {host.state.running} running, {age(seconds)} ago"

"""`bullpen shutdown`: have agents, components and the hub of this home leave in order."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.components import Seen, ask_to_leave, in_progress, look, settings_or_defaults
from bullpen.cli.connect import connect
from bullpen.cli.takers import tell_to_leave
from bullpen.client import components as register
from bullpen.client import holder
from bullpen.client.hub import HubClient
from bullpen.component.discovery import scan
from bullpen.errors import BullpenError, Kind
from bullpen.model import duration
from bullpen.paths import HUB, Home, current_home

AT_ONCE = 32
LOOK_AGAIN_SECONDS = 0.1
SETTLE_SECONDS = 2.0  # an agent without a task has left by then
CANCEL_SECONDS = 30.0  # a cancelled run has its own time to end

Result = dict[str, Any] | BullpenError
Work = Callable[[], dict[str, Any]]


@click.command()
@click.option("--all", "everything", is_flag=True, help="Agents, components, and the hub at last.")
@click.option("--agents", is_flag=True, help="All agents.")
@click.option("--directors", is_flag=True, help="All directors.")
@click.option("--port", type=click.IntRange(1, 65535), help="What serves on this port.")
@click.option("--timeout", metavar="DURATION", help="How long running tasks are waited for.")
@click.option("--force", is_flag=True, help="Cancel what still runs then.")
@output.json_option
def command(
    everything: bool,
    agents: bool,
    directors: bool,
    port: int | None,
    timeout: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Have what serves in this home leave, after its running tasks. Nothing of another home is
    touched."""
    if sum((everything, agents, directors, port is not None)) != 1:
        raise BullpenError(
            "what is to leave?", hint="--all, --agents, --directors or --port N, one of them"
        )
    if os.environ.get("BULLPEN_ACTOR"):
        raise BullpenError("an agent may not do that", kind=Kind.DENIED)
    seconds = _seconds(timeout)
    home = current_home()
    results: list[Result] = []
    if port is not None:
        results += _together([lambda: _leave_port(home, port, seconds, force)])
    if agents or everything:
        results += _together(_agents(home, seconds, force))
    if directors or everything:
        here = look(home, settings_or_defaults(home))
        wanted = [one for one in here if _is_meant(home, one, directors)]
        results += _together([_leaving(home, one, seconds, force) for one in wanted])
    if everything and register.find_hub(home) is not None:
        results += _together([lambda: _leave_hub(home, seconds, force)])
    _show(results, as_json)


def _seconds(timeout: str | None) -> float | None:
    try:
        return duration.parse(timeout).total_seconds() if timeout else None
    except ValueError as error:
        raise BullpenError(f"--timeout: {error}") from error


def _together(work: list[Work]) -> list[Result]:
    """All side by side; what failed does not hold up the others."""

    def attempt(one: Work) -> Result:
        try:
            return one()
        except BullpenError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(attempt, work))


# ── agents ──


def _agents(home: Home, seconds: float | None, force: bool) -> list[Work]:
    """Through the hub; one is started for it only if there is somebody to stop."""
    if register.find_hub(home) is None and not holder.running(home):
        return []
    running = [agent for agent in connect().get("agents")["agents"] if agent["running"]]
    return [_stopping(home, agent, seconds, force) for agent in running]


def _stopping(home: Home, agent: dict[str, Any], seconds: float | None, force: bool) -> Work:
    name = agent["name"]

    def work() -> dict[str, Any]:
        client = HubClient(home)
        if agent["kind"] == "headless":
            return {"type": "agent", "name": name, "result": _drain(client, name, seconds, force)}
        client.delete("agents", name, grace=seconds)
        return {"type": "agent", "name": name, "result": "stopped"}

    return work


def _drain(client: HubClient, name: str, seconds: float | None, force: bool) -> str:
    """For one that takes tasks; what still runs after its time goes on, unless it is forced."""
    asked: dict[str, Any] = {"force": True} if force else {}
    if seconds is not None:
        asked["timeout_seconds"] = seconds
    try:
        leaving = tell_to_leave(client, name, asked or None)
    except BullpenError as error:
        if "task_id" not in error.details:
            raise
        raise in_progress(name, str(error.details["task_id"])) from error
    grace = CANCEL_SECONDS if force else SETTLE_SECONDS
    deadline = time.monotonic() + leaving["drain_timeout"] + grace
    while client.get("agents", name)["running"]:
        if time.monotonic() > deadline:
            return "leaves when its task is over"
        time.sleep(LOOK_AGAIN_SECONDS)
    return "left"


# ── components ──


def _is_meant(home: Home, one: Seen, only_directors: bool) -> bool:
    """Agents' ports are the hub's, and the hub comes last."""
    kind = one.found.type
    is_kind = kind == "director" if only_directors else kind in ("director", "view", "bridge")
    return is_kind and one.found.is_own(home.id)


def _leaving(home: Home, one: Seen, seconds: float | None, force: bool) -> Work:
    found = one.found
    return lambda: {
        "type": found.type,
        **ask_to_leave(home, found.port, found.name, seconds, force),
    }


def _leave_port(home: Home, port: int, seconds: float | None, force: bool) -> dict[str, Any]:
    here = scan([port])
    if not here:
        raise BullpenError(f"no component answers on port {port}", kind=Kind.NOT_FOUND)
    found = here[0]
    if not found.is_own(home.id):
        raise BullpenError(
            f"port {port} is {found.type} {found.name} of another home",
            hint="shut it down from there",
            kind=Kind.DENIED,
        )
    waits = found.type != "agent"
    return {"type": found.type, **ask_to_leave(home, port, found.name, seconds, force, waits)}


def _leave_hub(home: Home, seconds: float | None, force: bool) -> dict[str, Any]:
    return {"type": "hub", **ask_to_leave(home, home.socket(HUB), "hub", seconds, force)}


# ── what came of it ──


def _show(results: list[Result], as_json: bool) -> None:
    failed = [one for one in results if isinstance(one, BullpenError)]
    done = [one for one in results if not isinstance(one, BullpenError)]
    if as_json:
        output.write_json(done)
    else:
        for one in done:
            output.write(f"{one['type']} {output.printable(one['name'])} {one['result']}")
        if not results:
            output.write("nothing was running")
    for error in failed[1:]:
        output.write_error(error.message, error.hint)
    if failed:
        raise failed[0]

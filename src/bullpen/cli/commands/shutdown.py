"""`bullpen shutdown`: have agents, components and the hub of this home leave in order."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.components import (
    Departure,
    OwnComponent,
    ask_to_leave,
    in_progress,
    own_components,
)
from bullpen.cli.connect import connect
from bullpen.cli.ending import shown_endings
from bullpen.cli.tasks.agents import find_current_task, tell_to_leave
from bullpen.client import agents as agent_calls
from bullpen.client import holder, processes
from bullpen.client.hub import Hub
from bullpen.component.discovery import scan
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import claimed_ports
from bullpen.home.paths import HUB, Home, current_home
from bullpen.model import duration

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown

AT_ONCE = 32
LOOK_AGAIN_SECONDS = 0.1
SETTLE_SECONDS = 2.0  # a task that was to end has ended by then
LEAVE_SECONDS = 30.0  # after that: a cancelled run has its own time to end, a busy hub takes it

Result = Departure | BullpenError
Work = Callable[[], Departure]


@click.command()
@click.option("--all", "everything", is_flag=True, help="Agents, components, and the hub at last.")
@click.option("--agents", is_flag=True, help="All agents.")
@click.option("--directors", is_flag=True, help="All directors.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="What of this home serves on this port."
)
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
        with shown_endings(home):
            results += _together(_agents(home, seconds, force))
    if directors or everything:
        results += _together(_components(home, directors, seconds, force))
    if everything and processes.find_hub(home) is not None:
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
    if processes.find_hub(home) is None and not holder.running(home):
        return []
    agents = connect().do(agent_calls.list_agents().unchecked()).agents
    return [_stopping(home, agent, seconds, force) for agent in agents if agent.running]


def _stopping(home: Home, agent: "AgentShown", seconds: float | None, force: bool) -> Work:
    def work() -> Departure:
        hub = Hub(home)
        if agent.kind == "headless":
            return Departure("agent", agent.name, _drain(hub, agent.name, seconds, force))
        hub.do(agent_calls.stop_agent(agent.name, seconds).unchecked())
        return Departure("agent", agent.name, "stopped")

    return work


def _drain(hub: Hub, name: str, seconds: float | None, force: bool) -> str:
    """For one that takes tasks; what still runs after its time goes on, unless it is forced."""
    try:
        leaving = tell_to_leave(hub, name, timeout_seconds=seconds, force=force or None)
    except BullpenError as error:
        if "task_id" not in error.details:
            raise
        raise in_progress(name, str(error.details["task_id"])) from error
    drained = time.monotonic() + leaving.drain_timeout + SETTLE_SECONDS
    while hub.do(agent_calls.get_agent(name).unchecked()).running:
        now = time.monotonic()
        goes_on = not force and now > drained and find_current_task(hub, name) is not None
        if goes_on or now > drained + LEAVE_SECONDS:
            return "leaves when its task is over"
        time.sleep(LOOK_AGAIN_SECONDS)
    return "left"


# ── components ──


def _components(home: Home, only_directors: bool, seconds: float | None, force: bool) -> list[Work]:
    own = own_components(home)
    wanted = [one for one in own if one.type == "director" or not only_directors]
    listening = {one.pid for one in own}
    silent = [one for one in processes.registered(home) if one.pid not in listening]
    kinds = ("director",) if only_directors else ("director", "view", "bridge")
    return [
        *(_leaving(one, seconds, force) for one in wanted),
        *(_unreachable(one) for one in silent if one.kind in kinds),
    ]


def _leaving(one: OwnComponent, seconds: float | None, force: bool) -> Work:
    return lambda: ask_to_leave(one.socket, one.type, one.name, timeout=seconds, force=force)


def _unreachable(one: processes.RegisteredComponent) -> Work:
    def work() -> Departure:
        raise BullpenError(
            f"{one.kind} {one.name} (pid {one.pid}) listens at no socket of this home",
            hint=f"kill {one.pid} has it leave, too · bullpen kill --all",
            kind=Kind.UNAVAILABLE,
        )

    return work


def _leave_port(home: Home, port: int, seconds: float | None, force: bool) -> Departure:
    """By what this home knows of the port. What answers there proves nothing."""
    for one in own_components(home):
        if one.port == port:
            return _leaving(one, seconds, force)()
    if processes.find_hub(home) is not None:
        if processes.hub_port(home) == port:
            return _leave_hub(home, seconds, force)
        for path, claimed in claimed_ports(home):
            if claimed == port and path.parent == home.agents:
                hub, name = Hub(home), path.stem
                return Departure("agent", name, _drain(hub, name, seconds, force))
    raise _not_ours(home, port)


def _not_ours(home: Home, port: int) -> BullpenError:
    here = scan([port])
    if not here:
        return BullpenError(f"no component answers on port {port}", kind=Kind.NOT_FOUND)
    shown = f"port {port} is {here[0].type} {here[0].name}"
    if not here[0].is_own(home.id):
        return BullpenError(
            f"{shown} of another home", hint="shut it down from there", kind=Kind.DENIED
        )
    return BullpenError(
        f"port {port} says that it is {here[0].type} {here[0].name} of this home, and it is not",
        hint=f"nothing was sent to it · see who it is: ss -ltnp 'sport = :{port}'",
        kind=Kind.DENIED,
    )


def _leave_hub(home: Home, seconds: float | None, force: bool) -> Departure:
    return ask_to_leave(home.socket(HUB), "hub", "hub", timeout=seconds, force=force)


# ── what came of it ──


def _show(results: list[Result], as_json: bool) -> None:
    failed = [one for one in results if isinstance(one, BullpenError)]
    done = [one for one in results if not isinstance(one, BullpenError)]
    if as_json:
        output.write_json({"results": [one.to_json() for one in done]})
    else:
        for one in done:
            output.write(f"{one.type} {output.printable(one.name)} {one.result}")
        if not results:
            output.write("nothing was running")
    for error in failed[1:]:
        output.write_error(error.message, error.hint)
    if failed:
        raise failed[0]

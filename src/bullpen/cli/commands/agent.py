"""`bullpen agent`: agents that take tasks: start them, stop them, list them."""

import shlex
import time
from typing import Any

import click

from bullpen.agent_files import list_agent_files, load_agent_file
from bullpen.cli import output
from bullpen.cli.caller import caller
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect
from bullpen.cli.takers import checked, complete_takers, find_agent, tell_to_leave
from bullpen.cli.task_options import seconds_of
from bullpen.client import tasks
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind

HEADERS = ("NAME", "ROLE", "STATE", "TASK", "PORT")
LEAVE_SECONDS = 30.0  # beyond the drain: a cancelled run has its own time to end
LOOK_AGAIN_SECONDS = 0.1

name_argument = click.argument("name", callback=checked, shell_complete=complete_takers)


@click.group()
def command() -> None:
    """Agents that take tasks: start, stop and list them."""


@command.command()
@name_argument
@click.option("--role", shell_complete=complete_roles, help="For an agent without a file.")
@output.json_option
def start(name: str, role: str | None, as_json: bool) -> None:
    """Start an agent that takes tasks, as agents/NAME.yaml says.

    With --role it needs no file.
    """
    status = tasks.start_agent(connect(), caller(), name, role)
    if as_json:
        output.write_json(status)
        return
    port = status["config"].get("port")
    where = f" · port {port}" if port else ""
    output.write(f'{name} takes tasks{where} · bullpen task {name} "…"')


@command.command()
@name_argument
@click.option("--timeout", metavar="DURATION", help="For its running task (default: 30s).")
@click.option("--force", is_flag=True, help="Cancel what still runs then.")
@output.json_option
def stop(name: str, timeout: str | None, force: bool, as_json: bool) -> None:
    """Stop an agent: no more tasks, and it leaves when its task is over.

    A task that takes longer than the time-out goes on, and the agent leaves after it; with
    --force it is cancelled.
    """
    asked: dict[str, Any] = {"force": force}
    seconds = seconds_of("--timeout", timeout)
    if seconds is not None:
        asked["timeout_seconds"] = seconds
    hub = connect()
    if not _is_there(hub, name):
        if as_json:
            output.write_json({"name": name, "has_left": True, "message": "was not running"})
        else:
            output.write(f"{name} was not running")
        return
    leaving = tell_to_leave(hub, name, asked)
    has_left = _wait_gone(hub, name, leaving["drain_timeout"])
    if as_json:
        output.write_json({**leaving, "name": name, "has_left": has_left})
    elif has_left:
        output.write(f"{name} has left · bullpen agent start {name}")
    else:
        task = _current_task(hub, name)
        what = f"task {task['id']} is over · bullpen task cancel {task['id']}" if task else "it can"
        output.write(f"{name} takes no more tasks, and leaves when {what}")


def _is_there(hub: HubClient, name: str) -> bool:
    """Whether it runs; raises if there is nobody of that name, or none that takes tasks."""
    if name in list_agent_files(hub.home) and find_agent(hub, name) is None:
        return False
    found = hub.get("agents", name)
    if found["kind"] != "headless":
        raise BullpenError(
            f"{name} works in a terminal", hint=f"bullpen stop {name}", kind=Kind.CONFLICT
        )
    return bool(found["running"])


def _wait_gone(hub: HubClient, name: str, drain_seconds: float) -> bool:
    """Until it has left; no longer than it may take, if nothing runs that is not to be ended."""
    drained = time.monotonic() + drain_seconds
    deadline = drained + LEAVE_SECONDS
    while hub.get("agents", name)["running"]:
        now = time.monotonic()
        if now > deadline:
            return False
        if now > drained + 1:
            task = _current_task(hub, name)
            if task is not None and tasks.get(hub, task["id"]).state != "cancelling":
                return False
        time.sleep(LOOK_AGAIN_SECONDS)
    return True


def _find_status(hub: HubClient, name: str) -> dict[str, Any] | None:
    """How it is; None if it has left in this moment."""
    try:
        return tasks.phase(hub, name)
    except BullpenError as error:
        if error.kind not in (Kind.CONFLICT, Kind.NOT_FOUND):
            raise
        return None


def _current_task(hub: HubClient, name: str) -> dict[str, Any] | None:
    status = _find_status(hub, name)
    return status["current_task"] if status is not None else None


@command.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List agents that take tasks, also those that do not run."""
    rows = _all(connect())
    if as_json:
        output.write_json(rows)
        return
    if not rows:
        output.write("no agents that take tasks · bullpen agent start NAME --role ROLE")
        return
    output.write_table(
        HEADERS,
        [
            (
                row["name"],
                row["role"] or "–",
                f"{row['state']} · {row['why']}" if row["why"] else row["state"],
                row["task"] or "–",
                str(row["port"] or "–"),
            )
            for row in rows
        ],
    )


def _all(hub: HubClient) -> list[dict[str, Any]]:
    found = {
        agent["name"]: agent for agent in hub.get("agents")["agents"] if agent["kind"] == "headless"
    }
    files = set(list_agent_files(hub.home))
    return [_row(hub, name, found.get(name), name in files) for name in sorted({*found, *files})]


def _row(hub: HubClient, name: str, agent: dict[str, Any] | None, has_file: bool) -> dict[str, Any]:
    status = _find_status(hub, name) if agent is not None and agent["running"] else None
    row: dict[str, Any] = {
        "name": name,
        "role": agent["role"] if agent is not None else None,
        "state": "not running",
        "task": None,
        "port": None,
        "why": None,
        "running": status is not None,
        "has_file": has_file,
    }
    if status is not None:
        task = status["current_task"]
        row |= {
            "state": status["state"],
            "task": task["id"] if task else None,
            "port": status["config"].get("port"),
            "why": tasks.why(status) if status["state"] == "error" else None,
        }
    elif has_file:
        try:
            file = load_agent_file(hub.home, name)
        except BullpenError:
            path = shlex.quote(str(hub.home.agents / f"{name}.yaml"))
            row |= {"state": "broken", "why": f"bullpen validate {path}"}
        else:
            row |= {"role": file.role, "port": file.port}
    return row

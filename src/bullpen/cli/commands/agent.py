"""`bullpen agent`: agents that take tasks: start them, stop them, list them."""

import shlex
import time
from typing import TYPE_CHECKING, TypedDict

import click

from bullpen.cli import output
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.connect import connect
from bullpen.cli.help_text import Group
from bullpen.cli.tasks import agents as task_agents
from bullpen.cli.tasks.agents import check_own_argument, complete_task_agents
from bullpen.cli.tasks.ids import whose
from bullpen.cli.tasks.options import seconds_of
from bullpen.client import tasks
from bullpen.client.agents import list_agents
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files, load_agent_file

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown

HEADERS = ("NAME", "ROLE", "STATE", "TASK", "PORT")
LEAVE_SECONDS = 30.0  # beyond the drain: a cancelled run has its own time to end
LOOK_AGAIN_SECONDS = 0.1

name_argument = click.argument(
    "name", callback=check_own_argument, shell_complete=complete_task_agents
)


@click.group(cls=Group)
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
    status = task_agents.start(connect(), name, role)
    if as_json:
        output.write_json(status)
        return
    port = status.config.get("port")
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
    --force it is cancelled. The agent stays stopped until you start it, also when the hub or
    the machine starts again and its file says autostart.
    """
    seconds = seconds_of("--timeout", timeout)
    hub = connect()
    if not _is_there(hub, name):
        if as_json:
            output.write_json({"name": name, "has_left": True, "message": "was not running"})
        else:
            output.write(f"{name} was not running")
        return
    leaving = task_agents.tell_to_leave(hub, name, timeout_seconds=seconds, force=force)
    has_left = _wait_gone(hub, name, leaving.drain_timeout)
    if as_json:
        output.write_json({**leaving.model_dump(), "name": name, "has_left": has_left})
    elif has_left:
        output.write(f"{name} has left · {_start_again(hub, name)}")
    else:
        task = task_agents.find_current_task(hub, name)
        what = f"task {task.id} is over · bullpen task cancel {task.id}" if task else "it can"
        output.write(f"{name} takes no more tasks, and leaves when {what}")


def _start_again(hub: Hub, name: str) -> str:
    """The command that starts it as it was: without a file nothing else knows its role."""
    words = f"bullpen agent start {name}"
    if name in list_agent_files(hub.home):
        return words
    return f"{words} --role {task_agents.get_agent(hub, name).role}"


def _is_there(hub: Hub, name: str) -> bool:
    """Whether it runs; raises if there is nobody of that name, or none that takes tasks."""
    if name in list_agent_files(hub.home) and task_agents.find_agent(hub, name) is None:
        return False
    agent = task_agents.get_agent(hub, name)
    if agent.kind != "headless":
        raise BullpenError(
            f"{name} works in a terminal", hint=f"bullpen stop {name}", kind=Kind.CONFLICT
        )
    return agent.running


def _wait_gone(hub: Hub, name: str, drain_seconds: float) -> bool:
    """Until it has left; no longer than it may take, if nothing runs that is not to be ended."""
    drained = time.monotonic() + drain_seconds
    deadline = drained + LEAVE_SECONDS
    while task_agents.get_agent(hub, name).running:
        now = time.monotonic()
        if now > deadline:
            return False
        if now > drained + 1:
            task = task_agents.find_current_task(hub, name)
            if task is not None and _state_of(hub, task.id) != "cancelling":
                return False
        time.sleep(LOOK_AGAIN_SECONDS)
    return True


def _state_of(hub: Hub, task: str) -> str:
    return hub.do(tasks.get_task(task, whose())).state


@command.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List agents that take tasks, also those that do not run."""
    rows = _all(connect())
    if as_json:
        output.write_json({"task_agents": rows})
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
        drop=("PORT", "ROLE", "TASK"),
        cut=("NAME", "STATE"),
    )


class TaskAgentRow(TypedDict):
    """A task agent, as it is listed."""

    name: str
    role: str | None
    state: str
    task: str | None
    port: int | None
    why: str | None
    running: bool
    has_file: bool


def _all(hub: Hub) -> list[TaskAgentRow]:
    agents = {
        agent.name: agent for agent in hub.do(list_agents()).agents if agent.kind == "headless"
    }
    files = set(list_agent_files(hub.home))
    return [_row(hub, name, agents.get(name), name in files) for name in sorted({*agents, *files})]


def _row(hub: Hub, name: str, agent: "AgentShown | None", has_file: bool) -> TaskAgentRow:
    status = task_agents.find_status(hub, name) if agent is not None and agent.running else None
    row: TaskAgentRow = {
        "name": name,
        "role": agent.role if agent is not None else None,
        "state": "not running",
        "task": None,
        "port": None,
        "why": None,
        "running": status is not None,
        "has_file": has_file,
    }
    if status is not None:
        task = status.current_task
        row["state"] = status.state
        row["task"] = task.id if task else None
        row["port"] = status.config.get("port")
        why = task_agents.last_error(status) if status.state == "error" else None
        row["why"] = " · ".join(why.splitlines()) if why else None  # a row is one line
    elif has_file:
        try:
            file = load_agent_file(hub.home, name)
        except BullpenError:
            path = shlex.quote(str(hub.home.agents / f"{name}.yaml"))
            row["state"], row["why"] = "broken", f"bullpen validate {path}"
        else:
            row["role"], row["port"] = file.role, file.port
            if agent is not None and file.autostart:  # else it would run
                row["why"] = f"until bullpen agent start {name}"
    return row

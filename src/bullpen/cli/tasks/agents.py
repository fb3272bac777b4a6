"""Agents that take tasks, as commands name them: which there are, starting one, giving it a task,
telling it to leave."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from bullpen.cli.elsewhere import name_here
from bullpen.cli.tasks.wait import say
from bullpen.client import agents, task_agents
from bullpen.client.call import Call
from bullpen.client.hub import Hub
from bullpen.client.shell import this_shell
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files
from bullpen.home.paths import Home, current_home
from bullpen.home.session_file import read_session_file
from bullpen.model.names import SUBTREE_NAME, check_name
from bullpen.suggest import nearest
from bullpen.terminal.sessions import known

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentWithUsage
    from bullpen.model.component import CurrentTask, Leaving, Status
    from bullpen.model.task_shown import TaskAccepted, TaskShown

READY_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 0.2


# ── names ──


def complete_task_agents(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[str]:
    """Names of agents that take tasks for the shell; silent when there is no home."""
    try:
        names = _names(current_home())
    except (BullpenError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def agent_name(name: str) -> str:
    """The name itself, if an agent can have it: an empty one would mean everybody."""
    return name if SUBTREE_NAME.fullmatch(name) else check_name("agent", name)


def check_argument(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """The same for an argument, which may be `HOST/AGENT`."""
    if name is not None:
        agent_name(name.rpartition("/")[2])
    return name


def check_own_argument(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    """One of this machine, where its files are."""
    return agent_name(name_here(name))


def nobody(hub: Hub, name: str, words: Iterable[str]) -> BullpenError:
    """What to say of a name that is no agent's; it may be one of the words that are commands."""
    names = _names(hub.home)
    near = nearest(name, [*names, *words])
    if near:
        meant = near if near in names else f"bullpen task {near} ID"
        message = f"no agent called {name} · did you mean {meant}?"
    else:
        message = f"no agent called {name}"
        message += f" · there are {', '.join(names)}" if names else ""
    return BullpenError(
        message,
        hint=f"bullpen agent list · bullpen agent start {name} --role ROLE",
        kind=Kind.NOT_FOUND,
    )


def _names(home: Home) -> list[str]:
    return sorted({*list_agent_files(home), *_headless(home)})


def _headless(home: Home) -> Iterator[str]:
    return (name for name in known(home) if read_session_file(home, name).takes_tasks)


# ── looking ──


def find_agent(hub: Hub, name: str) -> "AgentWithUsage | None":
    """The agent as the hub knows it."""
    try:
        return get_agent(hub, name)
    except BullpenError as error:
        if error.kind is Kind.NOT_FOUND:
            return None
        raise


def get_agent(hub: Hub, name: str) -> "AgentWithUsage":
    """The same; raises if there is none."""
    return hub.do(agents.get_agent(name))


def get_status(hub: Hub, name: str) -> "Status":
    """The agent as a component."""
    return hub.do(task_agents.get_agent_status(name))


def find_status(hub: Hub, name: str) -> "Status | None":
    """The same; None if it has left in this moment."""
    try:
        return get_status(hub, name)
    except BullpenError as error:
        if error.kind not in (Kind.CONFLICT, Kind.NOT_FOUND):
            raise
        return None


def find_current_task(hub: Hub, name: str) -> "CurrentTask | None":
    """What it works on."""
    status = find_status(hub, name)
    return status.current_task if status is not None else None


def last_error(status: "Status") -> str:
    """What its journal says last of what is wrong."""
    errors = [entry.message for entry in status.log if entry.level == "error"]
    return errors[-1] if errors else "no reason was told"


# ── starting, and giving it a task ──


def ensure_running(hub: Hub, name: str) -> None:
    """Start it if it has a file and does not run; what else is wrong the hub says better."""
    if name not in list_agent_files(hub.home):
        return
    agent = find_agent(hub, name)
    if agent is None or not agent.running:
        say(f"{name} is not running: starting it (agents/{name}.yaml)")
        start(hub, name, None)


def start(hub: Hub, name: str, role: str | None) -> "Status":
    """Start one that takes tasks, and wait until it does; says why if it does not."""
    hub.do(agents.start_agent(this_shell(), kind="headless", name=name, role=role))
    status = _wait_ready(hub, name, time.monotonic() + READY_SECONDS)
    if status.state == "error":
        raise BullpenError(
            f"{name} cannot work: {last_error(status)}",
            hint=f"mend it, then bullpen agent stop {name} and start it again",
            kind=Kind.UNAVAILABLE,
        )
    return status


def give(hub: Hub, name: str, call: "Call[TaskAccepted | TaskShown]") -> "TaskAccepted | TaskShown":
    """Give it a task, once it is ready; acknowledged when this returns."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        _wait_ready(hub, name, deadline)
        try:
            return hub.do(call)
        except BullpenError as error:
            # A hub that was started again in between looks at its agents first.
            if error.kind is not Kind.UNAVAILABLE or time.monotonic() > deadline:
                raise
            if get_status(hub, name).state != "starting":
                raise


def _wait_ready(hub: Hub, name: str, deadline: float) -> "Status":
    """Until its engine has been looked at, or until that time; how it is then."""
    while True:
        status = get_status(hub, name)
        if status.state != "starting" or time.monotonic() > deadline:
            return status
        time.sleep(LOOK_AGAIN_SECONDS)


# ── leaving ──


def tell_to_leave(
    hub: Hub, name: str, *, timeout_seconds: float | None, force: bool | None
) -> "Leaving":
    """What the agent answers. Told by a hub that was killed before it said so, it may have left."""
    call = task_agents.shut_agent_down(name, timeout_seconds=timeout_seconds, force=force)
    try:
        return hub.do(call)
    except BullpenError:
        if get_agent(hub, name).running:
            raise
        from bullpen.model.component import Leaving

        return Leaving(message=f"{name} has left", drain_timeout=0.0, pid=0)

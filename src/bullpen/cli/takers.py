"""Agents that take tasks, as commands name them: which there are, and starting one by the way."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bullpen.agent_files import list_agent_files
from bullpen.cli.caller import caller
from bullpen.cli.task_wait import say
from bullpen.client import tasks
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind
from bullpen.model.names import SUBTREE_NAME, check_name
from bullpen.paths import Home, current_home
from bullpen.suggest import nearest
from bullpen.terminal.sessions import known


def complete_takers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of agents that take tasks for the shell; silent when there is no home."""
    try:
        names = _takers(current_home())
    except (BullpenError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def agent_name(name: str) -> str:
    """The name itself, if an agent can have it: an empty one would mean everybody."""
    return name if SUBTREE_NAME.fullmatch(name) else check_name("agent", name)


def checked(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """The same for an argument."""
    return None if name is None else agent_name(name)


def ensure_running(hub: HubClient, name: str) -> None:
    """Start it if it has a file and does not run; what else is wrong the hub says better."""
    if name not in list_agent_files(hub.home):
        return
    found = find_agent(hub, name)
    if found is None or not found["running"]:
        say(f"{name} is not running: starting it (agents/{name}.yaml)")
        tasks.start_agent(hub, caller(), name, None)


def nobody(hub: HubClient, name: str, words: Iterable[str]) -> BullpenError:
    """What to say of a name that is no agent's; it may be one of the words that are commands."""
    there = _takers(hub.home)
    near = nearest(name, [*there, *words])
    if near:
        meant = near if near in there else f"bullpen task {near} ID"
        message = f"no agent called {name} · did you mean {meant}?"
    else:
        message = f"no agent called {name}" + (f" · there are {', '.join(there)}" if there else "")
    return BullpenError(
        message,
        hint=f"bullpen agent list · bullpen agent start {name} --role ROLE",
        kind=Kind.NOT_FOUND,
    )


def find_agent(hub: HubClient, name: str) -> dict[str, Any] | None:
    """The agent as the hub knows it."""
    try:
        found: dict[str, Any] = hub.get("agents", name)
    except BullpenError as error:
        if error.kind is Kind.NOT_FOUND:
            return None
        raise
    return found


def _takers(home: Home) -> list[str]:
    return sorted({*list_agent_files(home), *_headless(home)})


def _headless(home: Home) -> Iterator[str]:
    for name in known(home):
        try:
            record = json.loads((home.session(name) / "session.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and record.get("kind") == "headless":
            yield name


def tell_to_leave(hub: HubClient, name: str, asked: dict[str, Any] | None) -> dict[str, Any]:
    """What the agent answers. Told by a hub that was killed before it said so, it may have left."""
    try:
        answer: dict[str, Any] = hub.post("agents", name, "shutdown", body=asked, again=True)
    except BullpenError:
        if hub.get("agents", name)["running"]:
            raise
        return {"message": f"{name} has left", "drain_timeout": 0.0}
    return answer

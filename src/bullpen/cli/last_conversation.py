"""Whether a start goes on with the conversation that an agent of that name had: asks a person
before a new one begins, and tells everybody else which it was. Called by `bullpen run`."""

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.client.agents import list_agents
from bullpen.client.hub import Hub

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentStarted


def ask_to_resume(hub: Hub, role: str, name: str | None) -> bool:
    """At a terminal: whether to go on with the last conversation, if there is one."""
    if os.environ.get("BULLPEN_ACTOR"):  # an agent answers no question that is the person's
        return False
    agents = {agent.name: agent for agent in hub.do(list_agents()).agents}
    number, wanted = 1, name or role
    while name is None and wanted in agents and agents[wanted].running:
        number += 1
        wanted = f"{role}-{number}"
    last = agents.get(wanted)
    if last is None or last.running or last.role != role or not last.conversation:
        return False
    return click.confirm(f"{wanted} has a conversation. Go on with it?", default=True, err=True)


def tell_left(agent: "AgentStarted", host: str = "") -> None:
    """On standard error: it is no part of what a script reads. `host` is its machine, if another
    one."""
    if not agent.left_conversation:
        return
    role = f"--role {shlex.quote(agent.role)} " if agent.role else ""
    there = f"--host {host} " if host else ""
    again = f"bullpen run {there}{role}--name {agent.name} --resume {agent.left_conversation}"
    name = f"{host}/{agent.name}" if host else agent.name
    sys.stderr.write(
        f"{name} begins a new conversation · to go on with the last one instead:"
        f" bullpen stop {name}, then {output.printable(again)}\n"
    )

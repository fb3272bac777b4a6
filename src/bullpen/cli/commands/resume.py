"""`bullpen resume`: agents that have ended come back, with their conversations."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.many_agents import act_on_each, in_pod
from bullpen.client import agents
from bullpen.errors import BullpenError
from bullpen.home.ssh_link import point_ssh_agent

if TYPE_CHECKING:
    from bullpen.client.hub import Hub


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="All that a reboot or a crash ended.")
@click.option("--pod", help="Those of this pod.")
@output.json_option
def command(names: Sequence[str], everyone: bool, pod: str | None, as_json: bool) -> None:
    """Bring agents back: each in its worktree, and its conversation goes on.

    Without names: all that were running when the machine went down, or that were killed from
    outside. An agent that was stopped, or came to its end by itself, comes back when it is named.
    """
    if sum((bool(names), everyone, pod is not None)) > 1:
        raise BullpenError("which agents?", hint="names, --pod POD or --all, one of them")
    hub = connect()
    point_ssh_agent(hub.home, os.environ)
    meant = list(dict.fromkeys(names)) or _interrupted(hub, pod)
    act_on_each(hub, meant, agents.resume_agent, "resumed", as_json)
    if not meant and not as_json:
        output.write("no agent was interrupted · by name: bullpen resume NAME")


def _interrupted(hub: "Hub", pod: str | None) -> list[str]:
    """Those that ended by nothing that they did, and that nobody stopped."""
    return [
        agent.name
        for agent in in_pod(hub, pod)
        if agent.state.state in ("ended", "lost") or getattr(agent.state, "unasked", False)
    ]

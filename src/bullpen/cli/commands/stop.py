"""`bullpen stop`: end agents, with their grace."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.choose_agent import complete_running
from bullpen.cli.connect import connect, connect_for
from bullpen.cli.ending import shown_endings
from bullpen.cli.many_agents import act_on_each, chosen, stopped_word
from bullpen.client import agents
from bullpen.client.hub import Hub
from bullpen.client.tree import stop_tree
from bullpen.errors import BullpenError
from bullpen.model import duration

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_running)
@click.option("--all", "everyone", is_flag=True, help="Every agent that runs.")
@click.option("--pod", help="The agents of this pod.")
@click.option("--grace", metavar="DURATION", help="Time to end by itself (default: stop_grace).")
@click.option("--tree", is_flag=True, help="And all agents that they started, those first.")
@output.json_option
def command(
    names: Sequence[str],
    everyone: bool,
    pod: str | None,
    grace: str | None,
    tree: bool,
    as_json: bool,
) -> None:
    """End agents. Their worktrees, branches and sessions stay."""
    try:
        seconds = duration.parse(grace).total_seconds() if grace else None
    except ValueError as error:
        raise BullpenError(f"--grace: {error}") from error
    hub = connect()
    if tree:
        if everyone or pod is not None or not names:
            raise click.UsageError("--tree takes names: bullpen stop NAME --tree")
        _stop_trees(hub, names, seconds, as_json)
        return
    meant = chosen(hub, names, everyone, pod)
    act_on_each(
        hub,
        meant,
        lambda name: agents.stop_agent(name, seconds),
        "stopped",
        as_json,
    )
    if not meant and not as_json:
        output.write("no agent is running")


def _stop_trees(hub: Hub, names: Sequence[str], grace: float | None, as_json: bool) -> None:
    """Each with all that descend from it, leaves first."""
    began = time.time()
    with shown_endings(hub.home):
        ended = [one for name in names for one in _stop_tree(name, grace)]
    if as_json:
        output.write_json({"agents": [agent for _, agent in ended]})
        return
    for name, agent in ended:
        what = stopped_word(agent, began)
        output.write(f"{name} {what} · {output.printable(agent.words)}")


def _stop_tree(name: str, grace: float | None) -> "list[tuple[str, AgentShown]]":
    """Those that were ended, each as it is named here."""
    hub, root = connect_for(name)
    agents = hub.do(stop_tree(root, grace).unchecked()).agents
    return [(hub.named(agent.name), agent) for agent in agents]

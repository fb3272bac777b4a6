"""`bullpen list`. The hub writes the text: to add a column, see `hub/render/agents.py`.

This is for when `hot/fast.py` does not do: the hub is down, or an option is new.
"""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.own_pod import own_pod
from bullpen.client.agents import list_agents
from bullpen.client.fleet import get_fleet


@click.command()
@click.option("--pod", help="Only this pod; '*' for all, grouped.")
@click.option("--watch", "-w", is_flag=True, help="Go on showing it; ring when somebody waits.")
@click.option("--tree", is_flag=True, help="Each under the agent that started it.")
@click.option("--fleet", is_flag=True, help="Those of all machines.")
@output.json_option
def command(pod: str | None, watch: bool, tree: bool, fleet: bool, as_json: bool) -> None:
    """List agents and what they do."""
    if fleet:
        if pod is not None or watch or tree:
            raise click.UsageError("--fleet lists all agents once: without --pod, --watch, --tree")
        show_fleet(as_json)
        return
    if tree:
        from bullpen.cli.commands import tree as whole_tree

        if pod is not None:
            raise click.UsageError("--tree shows all agents: without --pod")
        click.get_current_context().invoke(whole_tree.command, watch=watch, as_json=as_json)
        return
    if watch and as_json:
        raise click.UsageError("--watch draws for a person, --json prints once")
    if watch:
        from bullpen.cli.watch_list import watch_list

        watch_list(connect(), list_agents(pod, own_pod()))
    elif as_json:
        output.write_json(connect().do(list_agents(pod, own_pod()).as_json()))
    else:
        show_list(pod)


def show_fleet(as_json: bool) -> None:
    """Print those of all machines."""
    call = get_fleet(agents=True)
    if as_json:
        output.write_json(connect().do(call.as_json()))
    else:
        sys.stdout.write(connect().do(call.as_text(columns=output.terminal_columns())))


def show_list(pod: str | None = None) -> None:
    """Print it once."""
    colour = int(output.has_colours(sys.stdout))
    text = list_agents(pod, own_pod()).as_text(colour=colour, columns=output.terminal_columns())
    sys.stdout.write(connect().do(text))

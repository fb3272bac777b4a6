"""`bullpen tasks`: what is not over."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect_for
from bullpen.cli.tasks.agents import check_argument, complete_task_agents
from bullpen.cli.tasks.ids import whose
from bullpen.client.tasks import list_tasks


@click.command()
@click.argument(
    "agent", required=False, callback=check_argument, shell_complete=complete_task_agents
)
@output.json_option
def command(agent: str | None, as_json: bool) -> None:
    """List tasks that are not over: queued, working, kept open, being cancelled."""
    hub, agent = connect_for(agent or "")
    call = list_tasks(whose(agent))
    if as_json:
        output.write_json(hub.do(call.as_json()))
        return
    colour = int(output.has_colours(sys.stdout))
    sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns(), colour=colour)))

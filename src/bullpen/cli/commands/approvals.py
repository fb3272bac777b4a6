"""`bullpen approvals`: what waits for a person's decision; with a number, one of them whole."""

import sys
import time

import click

from bullpen.cli import output
from bullpen.cli.approval_choice import hub_of, number
from bullpen.cli.connect import connect
from bullpen.cli.pager import show_whole
from bullpen.client.agents import list_agents
from bullpen.client.approvals import get_approval, list_approvals
from bullpen.client.hub import Hub
from bullpen.model.approval_text import list_lines, terminal_lines, whole


@click.command()
@click.argument("id", required=False)
@click.option("--host", default="", help="What waits at this machine of the fleet.")
@output.json_option
def command(id: str | None, host: str, as_json: bool) -> None:
    """List what waits for your decision; with ID, show all of one. Answer with approve or deny,
    the questions of an agent with answer. What an engine asks in its terminal alone (Gemini CLI)
    is listed without a number: attach to it.

    Nothing is left out or changed without a mark: what shows nothing is written as ⟨U+202E⟩, a
    line break in the list as ⏎, a tab as ⇥.
    """
    if id is not None:
        hub, (word,) = hub_of([f"{host}/{id}" if host else id])
        approval = hub.do(get_approval(number(word)).unchecked())
        if as_json:
            output.write_json(approval)
        else:
            show_whole(whole(approval, time.time(), hub.host))
        return
    hub, call = connect().at(host), list_approvals()
    if as_json:
        output.write_json(hub.do(call.as_json()))
    elif host:
        _list_elsewhere(hub)
    else:
        sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns())))


def _list_elsewhere(hub: Hub) -> None:
    """As the hub of this machine writes its own: numbers and names say where they count."""
    waiting = hub.do(list_approvals()).approvals
    agents = hub.do(list_agents()).agents
    columns, now = output.terminal_columns(), time.time()
    lines = list_lines(waiting, columns, now, hub.host)
    lines += terminal_lines(agents, waiting, columns, now, hub.host)
    for line in lines or ["nothing waits for you there"]:
        output.write(line)

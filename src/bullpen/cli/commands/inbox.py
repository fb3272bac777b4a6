"""`bullpen inbox`: what was written to an agent, or to the person."""

import os
import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.messages import list_messages


@click.command()
@click.argument("name", required=False)
@click.option("--full", is_flag=True, help="Print the messages as a whole.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="So many of the newest; if more are new to you, the oldest of those.",
)
@output.json_option
def command(name: str | None, full: bool, limit: int, as_json: bool) -> None:
    """Print what was written to an agent, the newest last.

    Without NAME it is your own: inside an agent that agent's, else the person's. Your own
    count as read then; to look at another's changes nothing.
    """
    hub = connect()
    call = list_messages(name or os.environ.get("BULLPEN_ACTOR") or "root", limit)
    if as_json:
        output.write_json(hub.do(call.as_json()))
        return
    text = call.as_text(columns=output.terminal_columns(), full=int(full))
    sys.stdout.write(hub.do(text))

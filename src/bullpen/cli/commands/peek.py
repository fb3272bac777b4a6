"""`bullpen peek`: what an agent's terminal shows now."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.agents import get_screen


@click.command()
@click.argument("name")
@output.json_option
def command(name: str, as_json: bool) -> None:
    """Print the current screen of an agent."""
    hub, call = connect(), get_screen(name)
    if as_json:
        output.write_json(hub.do(call.as_json()))
    else:
        sys.stdout.write(hub.do(call.as_text()))

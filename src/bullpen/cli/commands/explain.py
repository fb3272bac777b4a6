"""`bullpen explain`: an agent's state, and the evidence it rests on."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client import agents


@click.command()
@click.argument("name")
@output.json_option
def command(name: str, as_json: bool) -> None:
    """Say why an agent's state is what it is."""
    hub, call = connect(), agents.explain(name)
    if as_json:
        output.write_json(hub.do(call.as_json()))
    else:
        sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns())))

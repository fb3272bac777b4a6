"""`bullpen explain`: an agent's state, and the evidence it rests on."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect


@click.command()
@click.argument("name")
@output.json_option
def command(name: str, as_json: bool) -> None:
    """Say why an agent's state is what it is."""
    hub = connect()
    if as_json:
        output.write_json(hub.get("agents", name, "explain"))
    else:
        sys.stdout.write(hub.text("agents", name, "explain"))

"""`bullpen status`: the hub and its agents in a line each, or one agent's whole record."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect


@click.command()
@click.argument("name", required=False)
@output.json_option
def command(name: str | None, as_json: bool) -> None:
    """Say how the hub is, or one agent. Exit code 3 when the hub is down."""
    hub = connect(start=False)
    path = ("agents", name) if name else ("status",)
    if as_json:
        output.write_json(hub.get(*path))
    else:
        sys.stdout.write(hub.text(*path))

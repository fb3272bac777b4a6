"""`bullpen list` for when the fast way does not do: the hub is down, or an option is new."""

import os
import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect


@click.command()
@click.option("--pod", help="Only this pod; '*' for all, grouped.")
@output.json_option
def command(pod: str | None, as_json: bool) -> None:
    """List agents and what they do."""
    hub = connect()
    own = os.environ.get("BULLPEN_POD") or None
    if as_json:
        output.write_json(hub.get("agents", pod=pod, own_pod=own))
    else:
        colour = int(output.colour("x", "ok") != "x")
        sys.stdout.write(hub.text("agents", pod=pod, own_pod=own, colour=colour))

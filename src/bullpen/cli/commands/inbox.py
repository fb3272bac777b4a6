"""`bullpen inbox`: what was written to an agent, or to the person."""

import os
import shutil
import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect


@click.command()
@click.argument("name", required=False)
@click.option("--full", is_flag=True, help="Print the messages as a whole.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="So many of the newest; your own new ones are shown in any case.",
)
@output.json_option
def command(name: str | None, full: bool, limit: int, as_json: bool) -> None:
    """Print what was written to an agent, the newest last.

    Without NAME it is your own: inside an agent that agent's, else the person's. Your own
    count as read then; to look at another's changes nothing.
    """
    path = ("agents", name or os.environ.get("BULLPEN_ACTOR") or "root", "messages")
    hub = connect()
    if as_json:
        output.write_json(hub.get(*path, limit=limit))
        return
    columns = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    sys.stdout.write(hub.text(*path, limit=limit, columns=columns, full=int(full)))

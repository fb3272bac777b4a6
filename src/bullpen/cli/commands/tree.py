"""`bullpen tree`: every agent under the one that started it. The hub writes the text."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.tree import get_tree


@click.command()
@click.option("--watch", "-w", is_flag=True, help="Go on showing it.")
@output.json_option
def command(watch: bool, as_json: bool) -> None:
    """Show every agent under the one that started it."""
    if watch and as_json:
        raise click.UsageError("--watch draws for a person, --json prints once")
    if watch:
        from bullpen.cli.watch_list import watch_text

        watch_text(connect(), get_tree(), "tree")
    elif as_json:
        output.write_json(connect().do(get_tree().as_json()))
    else:
        show_tree()


def show_tree() -> None:
    """Print it once."""
    colour = int(output.has_colours(sys.stdout))
    text = get_tree().as_text(colour=colour, columns=output.terminal_columns())
    sys.stdout.write(connect().do(text))

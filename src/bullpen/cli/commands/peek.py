"""`bullpen peek`: what an agent's terminal shows now."""

import click

from bullpen.cli import output
from bullpen.cli.connect import connect


@click.command()
@click.argument("name")
@output.json_option
def command(name: str, as_json: bool) -> None:
    """Print the current screen of an agent."""
    screen = connect().get("agents", name, "screen")
    if as_json:
        output.write_json(screen)
        return
    lines = [line.rstrip() for line in screen["lines"]]
    while lines and not lines[-1]:
        lines.pop()
    for line in lines:
        output.write(output.printable(line))

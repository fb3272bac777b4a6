"""`bullpen kill`: end agents at once, without grace."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.agents import act_on_each
from bullpen.cli.connect import connect


@click.command()
@click.argument("names", nargs=-1, required=True)
@output.json_option
def command(names: Sequence[str], as_json: bool) -> None:
    """End agents at once: SIGKILL, no grace. Their worktrees and sessions stay."""
    act_on_each(
        connect(),
        list(dict.fromkeys(names)),
        lambda client, name: client.delete("agents", name, grace=0),
        "killed",
        as_json,
    )

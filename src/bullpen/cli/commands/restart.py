"""`bullpen restart`: the same agents once more."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.many_agents import act_on_each
from bullpen.client import agents


@click.command()
@click.argument("names", nargs=-1, required=True)
@output.json_option
def command(names: Sequence[str], as_json: bool) -> None:
    """Start agents again: same identity, worktree, environment; stopped first if they run.

    An engine with conversations goes on with the last one, under the role as it is now.
    """
    act_on_each(
        connect(),
        list(dict.fromkeys(names)),
        agents.restart_agent,
        "started again",
        as_json,
    )

"""`bullpen stop`: end agents, with their grace."""

from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.agents import act_on_each, chosen
from bullpen.cli.connect import connect
from bullpen.errors import BullpenError
from bullpen.model import duration


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every agent that runs.")
@click.option("--pod", help="The agents of this pod.")
@click.option("--grace", metavar="DURATION", help="Time to end by itself (default: stop_grace).")
@output.json_option
def command(
    names: Sequence[str], everyone: bool, pod: str | None, grace: str | None, as_json: bool
) -> None:
    """End agents. Their worktrees, branches and sessions stay."""
    try:
        seconds = duration.parse(grace).total_seconds() if grace else None
    except ValueError as error:
        raise BullpenError(f"--grace: {error}") from error
    hub = connect()
    meant = chosen(hub, names, everyone, pod)
    act_on_each(
        hub,
        meant,
        lambda client, name: client.delete("agents", name, grace=seconds),
        "stopped",
        as_json,
    )
    if not meant and not as_json:
        output.write("no agent is running")

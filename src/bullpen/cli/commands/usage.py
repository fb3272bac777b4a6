"""`bullpen usage`: tokens, cost, requests and time, by agent, pod, role or day."""

import sys
from typing import Literal

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.usage import get_usage
from bullpen.errors import BullpenError
from bullpen.model import duration


@click.command()
@click.option(
    "--by",
    type=click.Choice(["agent", "pod", "role", "day"]),
    default="agent",
    show_default=True,
    help="What to add it up by.",
)
@click.option("--since", help="Only the last days, e.g. 7d; a day counts as a whole.")
@output.json_option
def command(by: Literal["agent", "pod", "role", "day"], since: str | None, as_json: bool) -> None:
    """Say what agents have used, also those that are gone."""
    seconds = None
    if since is not None:
        try:
            seconds = duration.parse(since).total_seconds()
        except ValueError as error:
            raise BullpenError(f"--since: {error}") from error
    hub, call = connect(), get_usage(by, seconds)
    if as_json:
        output.write_json(hub.do(call.as_json()))
    else:
        sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns())))

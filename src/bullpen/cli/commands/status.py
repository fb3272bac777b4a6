"""`bullpen status`: the hub and its agents in a line each, or one agent's whole record."""

import sys
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.client.agents import get_agent
from bullpen.client.call import Call
from bullpen.client.status import get_status


@click.command()
@click.argument("name", required=False)
@output.json_option
def command(name: str | None, as_json: bool) -> None:
    """Say how the hub is, or one agent. Exit code 3 when the hub is down."""
    hub = connect(start=False)
    call: Call[Any] = get_agent(name) if name else get_status()
    if as_json:
        output.write_json(hub.do(call.as_json()))
    elif name:
        sys.stdout.write(hub.do(call.as_text()))
    else:
        sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns())))

"""`bullpen approvals`: what waits for a person's decision; with a number, one of them whole."""

import sys
import time

import click

from bullpen.cli import output
from bullpen.cli.approval_choice import number
from bullpen.cli.connect import connect
from bullpen.cli.pager import show_whole
from bullpen.client.approvals import get_approval, list_approvals
from bullpen.model.approval_text import whole


@click.command()
@click.argument("id", required=False)
@output.json_option
def command(id: str | None, as_json: bool) -> None:
    """List what waits for your decision; with ID, show all of one. Answer with approve or deny,
    the questions of an agent with answer. What an engine asks in its terminal alone (Gemini CLI)
    is listed without a number: attach to it.

    Nothing is left out or changed without a mark: what shows nothing is written as ⟨U+202E⟩, a
    line break in the list as ⏎, a tab as ⇥.
    """
    if id is not None:
        approval = connect().do(get_approval(number(id)).unchecked())
        if as_json:
            output.write_json(approval)
        else:
            show_whole(whole(approval, time.time()))
        return
    hub, call = connect(), list_approvals()
    if as_json:
        output.write_json(hub.do(call.as_json()))
    else:
        sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns())))

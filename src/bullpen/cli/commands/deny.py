"""`bullpen deny`: refuse what an agent wants to do."""

import uuid

import click

from bullpen.cli import output
from bullpen.cli.commands.approve import number
from bullpen.cli.connect import connect


@click.command()
@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why; the agent gets to read it.")
@output.json_option
def command(id: str, reason: str, as_json: bool) -> None:
    """Refuse what an agent waits for; ID is its number in `bullpen approvals`."""
    body = {"decision": "deny", "reason": reason, "answer": uuid.uuid4().hex}
    found = connect().post("approvals", str(number(id)), body=body, again=True)
    if as_json:
        output.write_json(found)
    else:
        output.write(f"{found['agent']} was refused, and goes on without it.")

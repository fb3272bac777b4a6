"""`bullpen deny`: refuse what agents want to do."""

from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.approval_choice import answer_each, choose, hub_of
from bullpen.client.approvals import answer_approval

if TYPE_CHECKING:
    from bullpen.model.approval import Approval


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID|AGENT]...")
@click.option("--all", "everything", is_flag=True, help="All that wait.")
@click.option("--reason", default="", metavar="TEXT", help="Why; the agent gets to read it.")
@output.json_option
def command(ids: tuple[str, ...], everything: bool, reason: str, as_json: bool) -> None:
    """Refuse what agents wait for; ID is a number in `bullpen approvals`, AGENT means all of its.

    Without any it is, at a terminal, the only one that waits.
    """
    hub, words = hub_of(ids)

    def refuse(id: int) -> "Approval":
        approval = hub.do(answer_approval(id, "deny", reason=reason).unchecked())
        if not as_json:
            output.write(f"{hub.named(approval.agent)} was refused, and goes on without it.")
        return approval

    answer_each(choose(hub, words, everything, "deny").ids, refuse, as_json)

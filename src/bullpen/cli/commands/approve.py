"""`bullpen approve`: let agents go on."""

import time
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.approval_choice import answer_each, choose, hub_of
from bullpen.cli.pager import is_at_terminal, show_whole
from bullpen.client.approvals import answer_approval, get_approval
from bullpen.errors import BullpenError, Kind
from bullpen.model.approval_text import is_seen_in_list, label, list_lines, whole

if TYPE_CHECKING:
    from bullpen.client.hub import Hub
    from bullpen.model.approval import Approval


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID|AGENT]...")
@click.option("--all", "everything", is_flag=True, help="All that wait.")
@click.option("--always", is_flag=True, help="Do not ask this agent again: adds a rule for it.")
@click.option("--role", is_flag=True, help="Nor any other agent of its role: adds it to the file.")
@click.option("--yes", "-y", is_flag=True, help="I have read all of it: do not show it and ask.")
@output.json_option
def command(
    ids: tuple[str, ...], everything: bool, always: bool, role: bool, yes: bool, as_json: bool
) -> None:
    """Allow what agents wait for; ID is a number in `bullpen approvals`, AGENT means all of its.

    Without any it is, at a terminal, the only one that waits. What you have not named by its
    number is shown first, and so is one that the list does not show whole, and a rule that allows
    more than exactly this.
    """
    hub, words = hub_of(ids)
    chosen = choose(hub, words, everything, "approve")
    if chosen.unseen and not (yes or as_json):
        _show(hub, chosen.unseen)

    def allow(id: int) -> "Approval":
        if not yes:
            _make_sure(hub, hub.do(get_approval(id).unchecked()), always or role)
        call = answer_approval(id, "allow", always=always or role, role=role)
        approval = hub.do(call.unchecked())
        if not as_json:
            _tell(hub, approval, role)
        return approval

    answer_each(chosen.ids, allow, as_json)


def _show(hub: "Hub", approvals: "tuple[Approval, ...]") -> None:
    """And ask, if there is somebody to ask. A question is not allowed but answered: the hub says
    how."""
    for line in list_lines(approvals, output.terminal_columns(), time.time(), hub.host):
        output.write(line)
    count = sum(not approval.questions for approval in approvals)
    if count and is_at_terminal():
        click.confirm("Allow it?" if count == 1 else f"Allow these {count}?", abort=True)


def _tell(hub: "Hub", approval: "Approval", role: bool) -> None:
    output.write(f"{hub.named(approval.agent)} goes on.")
    rule = getattr(approval.state, "always", "")
    if rule:
        where = "it and its role" if role else "it"
        output.write(f"allowed to {where} from now on: {output.printable(rule)}")
        if wider := approval.rule.wider:
            output.write(f"that is {output.printable(wider)}")


def _make_sure(hub: "Hub", approval: "Approval", wants_rule: bool) -> None:
    """Nobody allows what was not shown."""
    wider = approval.rule.wider if wants_rule else ""
    if approval.questions:
        return  # the hub says how it is answered
    if approval.state.status != "waiting" or (is_seen_in_list(approval) and not wider):
        return
    total = len(approval.text) + approval.more
    if not is_at_terminal():
        why = f"--always would allow more than this: {wider}" if wider else ""
        why = why or f"it has {total} characters, more than `bullpen approvals` shows in its list"
        raise BullpenError(
            f"{label(approval, hub.host)} is not allowed yet: {output.printable(why)}",
            hint=f"read it: bullpen approvals {hub.named(approval.id)} · then: bullpen approve"
            f" {hub.named(approval.id)}{' --always' if wants_rule else ''} --yes",
            kind=Kind.CONFLICT,
        )
    if not show_whole(whole(approval, time.time(), hub.host)):
        raise BullpenError("not allowed: you have not seen all of it", kind=Kind.CONFLICT)
    question = f"Allow {wider} from now on?" if wider else f"Allow these {total} characters?"
    click.confirm(output.printable(question), abort=True)

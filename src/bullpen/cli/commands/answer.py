"""`bullpen answer`: answer the questions of an agent."""

import click

from bullpen.cli import output
from bullpen.cli.approval_choice import choose_question, hub_of
from bullpen.client.approvals import answer_agent


@click.command()
@click.argument("id", metavar="ID|AGENT")
@click.argument("answers", nargs=-1, required=True, metavar="ANSWER...")
@click.option("--text", "as_text", is_flag=True, help="What I say names no option.")
@output.json_option
def command(id: str, answers: tuple[str, ...], as_text: bool, as_json: bool) -> None:
    """Answer what an agent asks you; ID is a number in `bullpen approvals`.

    ANSWER is the number or the words of an option, or a text of your own. Where several options
    may be chosen, put commas between them. Of several questions each gets one ANSWER, in their
    order; one of several words is in quotes.
    """
    hub, (word,) = hub_of([id])
    number = choose_question(hub, word)
    approval = hub.do(answer_agent(number, answers, as_text=as_text).unchecked())
    if as_json:
        output.write_json(approval)
    else:
        output.write(f"{hub.named(approval.agent)} has your answer, and goes on.")

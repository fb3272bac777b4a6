"""`bullpen history`: all tasks that are kept, and everything that is kept of one."""

import shlex
import sys

import click

from bullpen.cli import output
from bullpen.cli.commands.task import complete_ids, write_logs, write_task
from bullpen.cli.commands.tasks import terminal_columns
from bullpen.cli.connect import connect
from bullpen.cli.first_word import FirstWord
from bullpen.cli.takers import checked, complete_takers
from bullpen.cli.task_text import PAST_HEADERS, fitted, past_rows, shown_output
from bullpen.client import tasks
from bullpen.model.task import STATES
from bullpen.model.task_shown import Shown


@click.command()
@click.argument("agent", required=False, callback=checked, shell_complete=complete_takers)
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--session", metavar="ID", help="Only those of this conversation.")
@click.option("--text", metavar="TEXT", help="Only those with this in prompt or output.")
@click.option("--page", type=click.IntRange(1, 1_000_000), default=1, help="The newest are 1.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="A page.")
@output.json_option
def list_(
    agent: str | None,
    state: str | None,
    session: str | None,
    text: str | None,
    page: int,
    limit: int,
    as_json: bool,
) -> None:
    """List all tasks that are kept, the newest first.

    bullpen history show ID prints one with its commits, --diff and --logs. So show is no name
    of an agent here.
    """
    query = {"state": state, "session": session, "text": text, "page": page, "limit": limit}
    found = connect().get(*tasks.base(agent or ""), "history", **query)
    if as_json:
        output.write_json(found)
        return
    shown = [Shown.model_validate(task) for task in found["items"]]
    if not shown:
        output.write(_none(found["total"], is_filtered=bool(agent or state or session or text)))
        return
    rows = past_rows(shown)
    output.write_table(PAST_HEADERS, fitted(PAST_HEADERS, rows, terminal_columns()))
    pages = -(-found["total"] // limit)
    if page < pages:
        filters = {"state": state, "session": session, "text": text}
        words = [agent or "", *(f"--{key}={value}" for key, value in filters.items() if value)]
        words += [f"--limit={limit}"] if limit != 20 else []
        again = shlex.join(["bullpen", "history", *filter(None, words), "--page", str(page + 1)])
        output.write(output.printable(f"page {page} of {pages} · {again}"))


def _none(total: int, is_filtered: bool) -> str:
    if total:
        return "no tasks on that page · --page 1"
    return "no such tasks" if is_filtered else 'no tasks yet · bullpen task AGENT "…"'


command = FirstWord(list_, name="history", help="Look at what is kept of a task.")


@command.command()
@click.argument("id", metavar="ID", shell_complete=complete_ids)
@click.option("--diff", "wants_diff", is_flag=True, help="Also what it has changed.")
@click.option("--logs", "wants_logs", is_flag=True, help="Also the raw output of its runs.")
@output.json_option
def show(id: str, wants_diff: bool, wants_logs: bool, as_json: bool) -> None:
    """Print everything that is kept of a task; as JSON always with diff and logs."""
    hub = connect()
    whole = tasks.find_id(hub, id)
    found = hub.get(*tasks.base(), "history", whole)
    if as_json:
        output.write_json(found)
        return
    write_task(Shown.model_validate(found))
    if wants_diff:
        output.write()
        if found["diff"] is None:
            output.write("no diff: it did not work in a git checkout")
        else:
            diff = shown_output(found["diff"], sys.stdout.isatty())
            sys.stdout.write(diff or "it has changed nothing\n")
    if wants_logs:
        output.write()
        write_logs(found["logs"])
    if found["diff"] and not wants_diff:
        output.write(f"\nit has a diff · bullpen history show {whole} --diff")

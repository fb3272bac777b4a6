"""`bullpen history`: all tasks that are kept, and everything that is kept of one."""

import sys

import click

from bullpen.cli import output
from bullpen.cli.commands.task import write_logs, write_task
from bullpen.cli.connect import connect_for
from bullpen.cli.first_word import FirstWord
from bullpen.cli.tasks.agents import check_argument, complete_task_agents
from bullpen.cli.tasks.ids import complete_ids, find_id, whose
from bullpen.cli.tasks.text import changes_text, has_changes, named, shown_output
from bullpen.client import tasks
from bullpen.model.task import STATES
from bullpen.model.task_shown import Complete


@click.command()
@click.argument(
    "agent", required=False, callback=check_argument, shell_complete=complete_task_agents
)
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--session", metavar="ID", help="Only those of this conversation.")
@click.option("--text", metavar="TEXT", help="Only those with this in prompt or output.")
@click.option("--page", type=click.IntRange(1, 1_000_000), default=1, help="The newest are 1.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="So many on a page.",
)
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
    hub, agent = connect_for(agent or "")
    call = tasks.list_history(
        whose(agent), state=state, session=session, text=text, page=page, limit=limit
    )
    if as_json:
        history = hub.do(call)
        where = {"page": history.page, "limit": history.limit, "total": history.total}
        output.write_json({"tasks": history.items, **where})
        return
    colour = int(output.has_colours(sys.stdout))
    sys.stdout.write(hub.do(call.as_text(columns=output.terminal_columns(), colour=colour)))


command = FirstWord(list_, name="history", help="Look at what is kept of a task.")


@command.command()
@click.argument("id", metavar="ID", shell_complete=complete_ids)
@click.option(
    "--diff", "wants_diff", is_flag=True, help="Also its commits and what it did not commit."
)
@click.option("--logs", "wants_logs", is_flag=True, help="Also the raw output of its runs.")
@output.json_option
def show(id: str, wants_diff: bool, wants_logs: bool, as_json: bool) -> None:
    """Print everything that is kept of a task; as JSON always with diff and logs."""
    hub, id = connect_for(id)
    whole = find_id(hub, id)
    call = tasks.get_history(whole, whose())
    if as_json:
        output.write_json(hub.do(call.as_json()))
        return
    task = hub.do(call)
    write_task(named(task, hub))
    if wants_diff:
        output.write()
        sys.stdout.write(_changes(task))
    if wants_logs:
        output.write()
        write_logs(task.logs)
    if not wants_diff and (task.diff or (task.changes and has_changes(task.changes))):
        output.write(f"\nit has a diff · bullpen history show {hub.named(whole)} --diff")


def _changes(task: Complete) -> str:
    is_terminal = sys.stdout.isatty()
    if task.changes:
        text = changes_text(task.changes, task.commit_count, is_terminal)
        return text if has_changes(task.changes) else "it has changed nothing\n"
    if task.diff is not None:  # one of an earlier version
        return shown_output(task.diff, is_terminal) or "it has changed nothing\n"
    if task.state in ("queued", "working", "cancelling"):
        return "no diff yet: it is made when a run has ended\n"
    return "no diff: it did not work in a git checkout\n"

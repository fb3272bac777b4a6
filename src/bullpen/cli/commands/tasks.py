"""`bullpen tasks`: what is not over."""

import sys
import time

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.takers import checked, complete_takers
from bullpen.cli.task_text import OPEN_HEADERS, fitted, open_rows
from bullpen.client import tasks
from bullpen.model.task_shown import Shown


@click.command()
@click.argument("agent", required=False, callback=checked, shell_complete=complete_takers)
@output.json_option
def command(agent: str | None, as_json: bool) -> None:
    """List tasks that are not over: queued, working, kept open, being cancelled."""
    found = connect().get(*tasks.base(agent or ""), "tasks")
    if as_json:
        output.write_json(found)
        return
    shown = [Shown.model_validate(task) for task in found["tasks"]]
    if not shown:
        whose = f" of {agent}" if agent else ""
        output.write(
            f'no open tasks{whose} · bullpen task {agent or "AGENT"} "…" · bullpen history'
        )
        return
    rows = open_rows(shown, time.time())
    output.write_table(OPEN_HEADERS, fitted(OPEN_HEADERS, rows, terminal_columns()))


def terminal_columns() -> int:
    """Of a person's terminal; 0 if there is none."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0

"""`bullpen wait`: until agents are idle, finished, blocked or gone; the exit code says which."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.choose_agent import complete_running
from bullpen.cli.connect import connect_for
from bullpen.client.hub import Hub
from bullpen.client.tree import wait_for_agents
from bullpen.errors import BullpenError, Kind
from bullpen.model import duration

if TYPE_CHECKING:
    from bullpen.model.tree_shown import Waiting

LOOK_SECONDS = 30.0
# The worst of all counts. 2 to 7 are those of errors.
CODES = {"idle": 0, "finished": 0, "failed": 1, "blocked": 10, "gone": 11}
TIMED_OUT = 124  # as of timeout(1)


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_running)
@click.option("--any", "is_any", is_flag=True, help="Until one of them is over; else all.")
@click.option("--timeout", metavar="DURATION", help="At most so long, e.g. 1h.")
@output.json_option
def command(names: Sequence[str], is_any: bool, timeout: str | None, as_json: bool) -> None:
    """Wait until agents are idle, finished, blocked or gone.

    One that has yet to begin with the prompt of its start, or with a message, is not idle.

    Exit code 0: idle or finished; 1: reported a failure; 10: blocked; 11: gone without a report;
    124: the time is over."""
    try:
        seconds = duration.parse(timeout).total_seconds() if timeout else None
    except ValueError as error:
        raise BullpenError(f"--timeout: {error}") from error
    hub, names = _of_one_machine(list(dict.fromkeys(names)))
    waiting = _wait(hub, names, is_any, seconds)
    if as_json:
        output.write_json(waiting)
    else:
        for each in waiting.agents:
            words = "" if each.words == each.outcome else f"  {each.words}"
            output.write(output.printable(f"{hub.named(each.name)}  {each.outcome}{words}"))
    codes = [CODES[each.outcome] for each in waiting.agents if each.outcome in CODES]
    raise SystemExit(max(codes, default=0) if waiting.over else TIMED_OUT)


def _of_one_machine(names: Sequence[str]) -> tuple[Hub, list[str]]:
    """Their hub, and their names there: it is the one that waits."""
    hosts = {name.rpartition("/")[0]: name for name in names}
    if len(hosts) > 1:
        raise BullpenError(
            f"{' and '.join(hosts.values())} are on different machines",
            hint="a bullpen wait for each machine, one after the other",
        )
    given = [connect_for(name) for name in names]
    return given[0][0], [name for _, name in given]


def _wait(hub: Hub, names: Sequence[str], is_any: bool, seconds: float | None) -> "Waiting":
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = LOOK_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        call = wait_for_agents(names, is_any, min(left, LOOK_SECONDS))
        try:
            waiting = hub.do(call)
        except BullpenError as error:
            if error.kind is not Kind.UNAVAILABLE or left <= 0:
                raise
            continue
        if waiting.over or left <= 0:
            return waiting

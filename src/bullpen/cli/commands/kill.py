"""`bullpen kill`: end agents at once, or everything of this home."""

import os
import sys
from collections import Counter
from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.many_agents import act_on_each
from bullpen.client import agents
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home, short_path


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Agents, components, hub and factory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.json_option
def command(names: Sequence[str], everything: bool, yes: bool, as_json: bool) -> None:
    """End agents at once: SIGKILL, no grace. Their worktrees and sessions stay. With --all
    everything of this home is ended, also while the hub is down or does not answer: SIGTERM, and
    SIGKILL after 5 seconds."""
    if everything == bool(names):
        raise BullpenError("which agents?", hint="names, or --all")
    if everything:
        _kill_all(yes, as_json)
        return
    act_on_each(
        connect(),
        list(dict.fromkeys(names)),
        lambda name: agents.stop_agent(name, grace=0),
        "killed",
        as_json,
    )


def _kill_all(yes: bool, as_json: bool) -> None:
    from bullpen.cli.components import component_processes
    from bullpen.client.processes import end_all

    if os.environ.get("BULLPEN_ACTOR"):
        raise BullpenError("an agent may not do that", kind=Kind.DENIED)
    home = current_home()
    if not yes and sys.stdin.isatty():
        question = f"End all agents, all components and the hub of {short_path(home.root)}?"
        click.confirm(output.printable(question), abort=True, err=True)
    results = end_all(home, component_processes(home))
    if as_json:
        output.write_json(
            {
                "results": [
                    {"type": one.what, "name": one.name, "pid": one.pid, "result": result}
                    for one, result in results
                ]
            }
        )
    else:
        for one, result in results:
            name = one.what if one.name == one.what else f"{one.what} {one.name}"  # one hub only
            output.write(f"{output.printable(name)} {result} · pid {one.pid}")
        if not results:
            output.write("nothing was running")
    left = Counter(result for _, result in results)["left"]
    if left:
        raise BullpenError(
            f"{left} of {len(results)} processes could not be ended",
            hint="they may be stuck in the kernel; try again",
            kind=Kind.COMMAND_FAILED,
        )

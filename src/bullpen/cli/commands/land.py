"""`bullpen land`: land agents' work in a branch; look at the queue, take something out of it."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bullpen import worktrees
from bullpen.cli import output
from bullpen.cli.commands.worktree import complete_names
from bullpen.cli.connect import connect
from bullpen.cli.elsewhere import name_here
from bullpen.cli.landing_text import failed_lines, line_of, moved_lines, waiting_row
from bullpen.cli.live_line import LiveLine
from bullpen.cli.tasks.wait import say
from bullpen.cli.worktree_sites import open_site, worktree_named
from bullpen.client import landings
from bullpen.errors import BullpenError, Kind
from bullpen.model.landing import Landed, Landing, Refused
from bullpen.model.landing_rules import Strategy

if TYPE_CHECKING:
    from bullpen.client.hub import Hub

WAIT_SECONDS = 2.0  # for one answer; then it is asked again, to show how far it is
MOST_NAMED = 10


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_names)
@click.option("--into", metavar="BRANCH", help="Default: the branch that it was made from.")
@click.option(
    "--strategy",
    type=click.Choice(["merge", "squash", "rebase"]),
    help="Default: landing.strategy in config.yaml.",
)
@click.option(
    "--verify",
    metavar="COMMAND",
    help="Run in a sandbox on what would land. Default: what was named for it before, if it still"
    " waits, else landing.verify. Empty: nothing.",
)
@click.option("--no-wait", is_flag=True, help="Only put it into the queue.")
@click.option("--list", "is_list", is_flag=True, help="What waits to land, and why.")
@click.option("--cancel", metavar="NAME", help="Take it out of the queue.")
@output.json_option
def command(
    names: Sequence[str],
    into: str | None,
    strategy: Strategy | None,
    verify: str | None,
    no_wait: bool,
    is_list: bool,
    cancel: str | None,
    as_json: bool,
) -> None:
    """Land the work of agents in the branch that they were made from: all commits of their
    branches as they are now. A worktree without an agent, as those of tasks and goals, is named
    by its own name or its branch.

    It is built on top of that branch, verified, and the branch is moved; a checkout of it is
    fast-forwarded if nothing in it stands in the way. An agent that conflicts is told, and lands
    when it has committed an answer; in a worktree without an agent that commit is yours.
    """
    names = [name_here(worktree_named(name)) for name in names]
    cancel = name_here(worktree_named(cancel)) if cancel else None
    hub = connect()
    if is_list or cancel:
        if names or (is_list and cancel):
            raise click.UsageError("--list and --cancel NAME stand alone")
        if cancel:
            _write(hub.do(landings.cancel_landing(cancel)).landings, as_json)
        else:
            _write_queue(hub.do(landings.list_landings()).landings, as_json)
        return
    if not names:
        raise click.UsageError("whose work? bullpen land NAME…")
    call = landings.land(names, into=into, strategy=strategy, verify=verify)
    entries = hub.do(call).landings
    if no_wait:
        _write(entries, as_json)
        return
    ended = wait_for(hub, [landing.id for landing in entries])
    _write(ended, as_json)
    if not as_json:
        for one in ended:
            write_failed(hub, one)
        _tell_uncommitted([one.name for one in ended if isinstance(one.status, Landed)])
    raise_if_not_landed(ended)


def wait_for(hub: "Hub", ids: Sequence[str]) -> list[Landing]:
    """The entries, once nothing more happens to them by themselves. A hub that is killed meanwhile
    is waited for."""
    ended, line = [], LiveLine()
    try:
        for id in ids:
            seconds = 0.0
            while not (landing := hub.do(landings.get_landing(id, wait=seconds))).is_resting:
                name, target, state = waiting_row(landing)
                line.draw(output.printable(f"{name} · {target} · {state} …")[: line.columns])
                seconds = WAIT_SECONDS
            ended.append(landing)
    except KeyboardInterrupt:
        line.wipe()
        say("the landing goes on without you · bullpen land --list · bullpen land --cancel NAME")
        raise
    finally:
        line.wipe()
    return ended


def write_failed(hub: "Hub", landing: Landing) -> None:
    """What the command that verifies it wrote last, if it failed."""
    log = hub.home.landing_log(landing.id)
    for line in failed_lines(landing, log if log.exists() else None):
        output.write(line)


def raise_if_not_landed(ended: Sequence[Landing]) -> None:
    """A refusal is an error of the person's; what came back is not, and still no success."""
    for landing in ended:
        status = landing.status
        if isinstance(status, Refused):
            hint = status.hint or "bullpen land --list"
            details: dict[str, object] = {"files": list(status.files)}
            raise BullpenError(status.message, hint=hint, kind=Kind.CONFLICT, details=details)
    if any(not isinstance(landing.status, Landed) for landing in ended):
        raise click.exceptions.Exit(1)


def _write_queue(entries: Sequence[Landing], as_json: bool) -> None:
    if as_json:
        output.write_json({"landings": entries})
    elif not entries:
        output.write("nothing waits to land")
    else:
        output.write_table(["AGENT", "INTO", "STATE"], [waiting_row(one) for one in entries])
        output.write("bullpen land --cancel AGENT takes it out")


def _write(entries: Sequence[Landing], as_json: bool) -> None:
    if as_json:
        output.write_json({"landings": entries})
        return
    size = max((len(landing.name) for landing in entries), default=0)
    for landing in entries:
        if not isinstance(landing.status, Refused):
            output.write(line_of(landing, size))
    for line in moved_lines(entries):
        output.write(line)


def _tell_uncommitted(names: Sequence[str]) -> None:
    """Commits alone land: nobody is to think that the rest has."""
    for name in names:
        with contextlib.suppress(BullpenError):  # it may be gone, or in a repository that is
            files = worktrees.uncommitted_files(open_site(None, name), name)
            if files:
                count = (
                    "1 uncommitted file" if len(files) == 1 else f"{len(files)} uncommitted files"
                )
                some = ", ".join(files[:MOST_NAMED]) + (", …" if len(files) > MOST_NAMED else "")
                output.write(output.printable(f"{name}: not landed is {count}: {some}"))

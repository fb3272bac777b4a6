"""`bullpen rm`: remove agents as a whole."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.connect import connect
from bullpen.cli.ending import shown_endings
from bullpen.client import agents
from bullpen.errors import BullpenError

if TYPE_CHECKING:
    from bullpen.home.paths import Home
    from bullpen.model.agent_shown import AgentRemoved


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@output.json_option
def command(names: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Remove agents: each is stopped, and its session and its worktree go. Its branch goes, too, if
    nothing is lost with it.

    Who has uncommitted work, or work that exists nowhere else, goes on as it is. Messages that
    wait for one that is removed are refused: a later agent of its name does not get them.
    """
    remove = agents.plan_removal if dry_run else agents.remove_agent
    hub, removed, failures = connect(), [], []
    for name in dict.fromkeys(names):
        try:
            with shown_endings(hub.home, [name]):
                removed.append(hub.do(remove(name)))
        except BullpenError as error:
            failures.append(error)
        else:
            if not as_json:
                _write(name, removed[-1], hub.home, dry_run)
    if as_json:
        output.write_json({"removed": removed})
    for failure in failures[1:]:
        output.write_error(failure.message, failure.hint)
    if failures:
        raise failures[0]


def _write(name: str, agent: "AgentRemoved", home: "Home", dry_run: bool) -> None:
    done, kept = ("would be removed", "would keep") if dry_run else ("removed", "kept")
    gone = ["worktree"] if agent.worktree else []
    gone += [f"branch {output.printable(agent.branch)}"] if agent.branch else []
    output.write(f"{name} {done}" + (f" · with {' and '.join(gone)}" if gone else ""))
    if agent.branch_left:
        commits = "1 commit" if agent.unique_commits == 1 else f"{agent.unique_commits} commits"
        branch = output.printable(agent.branch_left)
        host, slash, _ = name.partition("/")
        merge = f"on {host}: git merge {branch}" if slash else f"git merge {branch}"
        output.write(f"{kept} branch {branch}: {commits} nowhere else · {merge}")
    if not agent.worktree and (home.worktrees / name).is_dir():
        output.write(
            f"{kept} worktree {name}, where its tasks worked · bullpen worktree info {name}"
        )

"""`bullpen finish`: what becomes of an agent's work, then the agent goes. Can be run again.

Every step finds out what is done already: what has landed is not landed twice, and what is gone is
not removed again.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bullpen import worktrees
from bullpen.cli import output
from bullpen.cli.commands.land import raise_if_not_landed, wait_for, write_failed
from bullpen.cli.commands.worktree import complete_names
from bullpen.cli.connect import connect
from bullpen.cli.elsewhere import name_here
from bullpen.cli.ending import shown_endings
from bullpen.cli.landing_text import line_of, moved_lines
from bullpen.cli.worktree_sites import bring_over, open_site, refuse_used, why_used, worktree_named
from bullpen.client import agents, landings
from bullpen.client.events import list_events
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home
from bullpen.worktrees import Site

if TYPE_CHECKING:
    from bullpen.cli.pull_request import OpenedPull
    from bullpen.client.hub import Hub

MOST_NAMED = 10
HOLDER_SECONDS = 10.0
LOOK_SECONDS = 0.05


@click.command()
@click.argument("name", shell_complete=complete_names)
@click.option("--land", "how", flag_value="land", help="Land its branch, then remove the agent.")
@click.option("--pr", "how", flag_value="pr", help="Push its branch, open a pull request for it.")
@click.option("--keep", "how", flag_value="keep", help="Remove the agent; its branch stays.")
@click.option("--discard", "how", flag_value="discard", help="Drop it; kept aside for 30 days.")
@click.option("--into", metavar="BRANCH", help="With --land or --pr: where to.")
@click.option("--commit", "message", metavar="MESSAGE", help="Commit what is not committed.")
@click.option("--dry-run", is_flag=True, help="With --keep or --discard: only say what goes.")
@output.json_option
def command(
    name: str,
    how: str | None,
    into: str | None,
    message: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """End an agent and deal with its work in one step: land it, open a pull request, keep its
    branch, or drop it.

    --land goes into the branch that it was made from, --pr asks for the forge's default branch.

    Uncommitted work is named, and nothing happens; --commit commits it. Interrupted, it can be run
    again.
    """
    name = name_here(worktree_named(name))
    if how is None:
        raise click.UsageError("what becomes of its work? --land, --pr, --keep or --discard")
    if into and how not in ("land", "pr"):
        raise click.UsageError("--into goes with --land or --pr")
    if message is not None and how == "discard":
        raise click.UsageError("--commit does not go with --discard")
    if dry_run and (how not in ("keep", "discard") or message is not None):
        raise click.UsageError("--dry-run goes with --keep or --discard alone; see bullpen diff")
    hub = connect()
    shown: dict[str, Any] = {}
    if dry_run:
        lines, shown = _plan(hub, name, how), {"dry_run": True}
    elif how == "pr":
        pull, lines = _finish_by_pull(hub, name, into, message)
        shown = {"pull": {"number": pull.number, "url": pull.url}}
    else:
        lines = _finish(hub, name, how, into, message)
    if as_json:
        output.write_json({"name": name, "how": how, "done": lines, **shown})
        return
    for line in lines:
        output.write(line)


def _finish(hub: "Hub", name: str, how: str, into: str | None, message: str | None) -> list[str]:
    site = open_site(None, name)
    is_there = worktrees.exists(site, name)
    lines: list[str] = []
    if is_there and how != "discard":
        if message is not None:
            lines += _commit(hub, site, name, message)
        _refuse_uncommitted(site, name)
    if how == "land" and (is_there or _has_branch(site, name)):
        lines += _land(hub, name, into)
    dropped = _discard(hub, site, name) if how == "discard" else []
    removed = _remove(
        hub, site, name, is_there, delete_branch=how != "keep", was_dropped=bool(dropped)
    )
    return [*lines, *dropped, *removed]


def _plan(hub: "Hub", name: str, how: str) -> list[str]:
    """What would become of its work, and of the agent. Touches nothing."""
    site = open_site(None, name)
    is_drop = how == "discard"
    if worktrees.exists(site, name) and not is_drop:
        _refuse_uncommitted(site, name)
    try:
        planned = hub.do(agents.plan_removal(name, keep_branch=not is_drop, discard=is_drop))
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        result = worktrees.plan_removal(site, name, force=is_drop, delete_branch=is_drop)
        if not result.existed:
            raise _no_such(name) from error
        branch, left, commits = result.branch, result.branch_left, result.unique_commits
    else:
        branch, left, commits = planned.branch, planned.branch_left, planned.unique_commits
    lost = (
        worktrees.uncommitted_files(site, name) if is_drop and worktrees.exists(site, name) else []
    )
    lines = [f"{name} would be removed" + (f" · with branch {branch}" if branch else "")]
    if left:
        lines.append(f"branch {left} would stay")
    if branch and commits:
        lines.append(f"{_count(commits, 'commit')} nowhere else")
    if lost:
        lines.append(f"{_count(len(lost), 'uncommitted file')}: {_named(lost)}")
    if lost or (branch and commits):
        lines.append(f"kept for 30 days: bullpen worktree restore {name}")
    return [output.printable(line) for line in lines]


def _finish_by_pull(
    hub: "Hub", name: str, into: str | None, message: str | None
) -> tuple["OpenedPull", list[str]]:
    """The branch stays: what is at the forge may be asked to change, or be refused."""
    from bullpen.cli.pull_request import open_pull

    site = open_site(None, name)
    is_there = worktrees.exists(site, name)
    lines: list[str] = []
    if is_there:
        if message is not None:
            lines += _commit(hub, site, name, message)
        _refuse_uncommitted(site, name)
    record = worktrees.find_record(site, name)
    branch = record.branch if record else name  # of one that is removed: its branch has its name
    if not branch or not worktrees.branch_exists(site.repo, branch):
        raise BullpenError(
            f"no branch of {name} is there", hint="bullpen list", kind=Kind.NOT_FOUND
        )
    pull = open_pull(current_home(), site.repo, branch, into)
    lines.append(output.printable(pull.words()))
    if is_there or _was_an_agent(hub, name):
        lines += _remove(hub, site, name, is_there, delete_branch=False)
    return pull, lines


def _has_branch(site: Site, name: str) -> bool:
    record = worktrees.find_record(site, name)
    return bool(record and record.branch and worktrees.branch_exists(site.repo, record.branch))


def _refuse_uncommitted(site: Site, name: str) -> None:
    bring_over(site, name)
    files = worktrees.uncommitted_files(site, name)
    if files:
        raise BullpenError(
            f"{name} has uncommitted work, which stays as it is: {_named(files)}",
            hint=f'have {name} commit it, or: bullpen finish {name} … --commit "MESSAGE"',
            kind=Kind.CONFLICT,
            details={"files": files[:100]},
        )


def _commit(hub: "Hub", site: Site, name: str, message: str) -> list[str]:
    """An agent that runs would commit at the same time: it ends first."""
    _stop(hub, name)
    bring_over(site, name)
    _refuse_used(site, name)
    commit = worktrees.commit_all(site, name, message)
    return [f"committed as {commit[:7]}"] if commit else []


def _land(hub: "Hub", name: str, into: str | None) -> list[str]:
    entries = hub.do(landings.land([name], into=into)).landings
    ended = wait_for(hub, [landing.id for landing in entries])
    lines = [line_of(landing, len(name)) for landing in ended]
    try:
        raise_if_not_landed(ended)
    except click.exceptions.Exit:
        for line, landing in zip(lines, ended, strict=True):
            output.write(line)
            write_failed(hub, landing)
        raise
    return [*lines, *moved_lines(ended)]


def _discard(hub: "Hub", site: Site, name: str) -> list[str]:
    _stop(hub, name)
    bring_over(site, name)
    _refuse_used(site, name)
    result = worktrees.remove(site, name, force=True)
    if not result.existed:
        return []
    back = f" · kept for 30 days: bullpen worktree restore {name}" if result.kept else ""
    return [f"dropped {name}{back}"]


def _stop(hub: "Hub", name: str) -> None:
    try:
        with shown_endings(hub.home, [name]):
            hub.do(agents.stop_agent(name))
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:  # a worktree without an agent, or one that is gone
            raise


def _refuse_used(site: Site, name: str) -> None:
    """Its holder is there for a moment after the hub has heard of its end."""
    deadline = time.monotonic() + HOLDER_SECONDS
    while why_used(site, name) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    refuse_used(site, name)


def _was_an_agent(hub: "Hub", name: str) -> bool:
    """Whoever runs it again when all is done is told so; a name that never was is a mistake."""
    return bool(hub.do(list_events(agent=name, limit=1)).events)


def _remove(
    hub: "Hub",
    site: Site,
    name: str,
    was_there: bool,
    *,
    delete_branch: bool,
    was_dropped: bool = False,
) -> list[str]:
    """The agent with all that is left of it; a worktree that no agent has."""
    try:
        with shown_endings(hub.home, [name]):
            removed = hub.do(agents.remove_agent(name, keep_branch=not delete_branch))
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        result = worktrees.remove(site, name, delete_branch=delete_branch)
        branch, left = result.branch, result.branch_left
        # Else only its branch was left. What was discarded went a moment ago.
        is_gone = was_there and (result.existed or was_dropped)
        if not (result.existed or was_dropped or _was_an_agent(hub, name)):
            raise _no_such(name) from error
    else:
        branch, left, is_gone = removed.branch, removed.branch_left, True
    words = f"{name} removed" if is_gone else f"{name} is gone already"
    if branch:
        words += f" · with branch {branch}"
    if left:
        words += f" · branch {left} stays"
    return [output.printable(words)]


def _no_such(name: str) -> BullpenError:
    return BullpenError(
        f"no agent or worktree called {name}", hint="bullpen list", kind=Kind.NOT_FOUND
    )


def _named(files: Sequence[str]) -> str:
    return ", ".join(files[:MOST_NAMED]) + (", …" if len(files) > MOST_NAMED else "")


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"

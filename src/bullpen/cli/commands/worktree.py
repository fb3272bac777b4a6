"""`bullpen worktree …`: thin over the library."""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from bullpen import clock, worktrees
from bullpen.cli import output
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.help_text import Group
from bullpen.cli.worktree_roles import as_role_wants, load_role, make_setup_sandbox
from bullpen.cli.worktree_sites import (
    all_names,
    bases_of_agents,
    bring_over,
    has_ended,
    named_argument,
    named_arguments,
    open_kept_site,
    open_site,
    refuse_used,
    why_kept,
    why_used,
    worktree_named,
)
from bullpen.cli.worktree_text import (
    show_path,
    write_cleaned,
    write_conflicts,
    write_removed,
)
from bullpen.errors import BullpenError
from bullpen.home.paths import current_home, short_path
from bullpen.model import duration
from bullpen.worktrees import Cleaned, Site, Spec, Stat


@click.group(cls=Group)
def command() -> None:
    """Make, look at, compare and remove worktrees.

    A NAME is enough wherever one stands; else --repo, or the current directory, says of which
    repository.
    """


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of worktrees for the shell; silent when there is no home or repository."""
    repo = ctx.params.get("repo")
    try:
        names = (
            [each.name for each in worktrees.list_managed(open_site(repo))] if repo else all_names()
        )
    except BullpenError:
        return []
    return [name for name in names if name.startswith(incomplete)]


repo_option = click.option(
    "--repo",
    type=click.Path(path_type=Path),
    help="A directory in the repository (default: that of NAME, else the current one).",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
name_argument = click.argument("name", callback=named_argument, shell_complete=complete_names)
names_argument = click.argument(
    "names", nargs=-1, required=True, callback=named_arguments, shell_complete=complete_names
)


@command.command("list")
@repo_option
@output.json_option
def list_worktrees(repo: Path | None, as_json: bool) -> None:
    """List the worktrees of this repository."""
    site = open_site(repo)
    bring_over(site)
    rows = worktrees.describe_everywhere(site, bases_of_agents())
    if as_json:
        output.write_json({"worktrees": worktrees.list_fields(rows)})
        return
    colour, columns = output.has_colours(sys.stdout), output.terminal_columns()
    output.write(worktrees.list_text(rows, colour=colour, columns=columns).removesuffix("\n"))


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--from", "base", default="", metavar="REF", help="Start from this ref.")
@click.option("--branch", default="", help="Name of the branch (one worktree only).")
@click.option("--detach", "detached", is_flag=True, help="No branch, a detached head.")
@click.option(
    "--session", metavar="ID", help="Branches are called <branch_prefix>/<role or NAME>-ID."
)
@click.option(
    "--role",
    default="",
    shell_complete=complete_roles,
    help="Begin, copy and set up as this role says.",
)
@click.option("--copy", multiple=True, metavar="GLOB", help="Untracked files to bring along.")
@click.option("--setup", default="", metavar="COMMAND", help="Run once when it is made.")
@click.option(
    "--no-sandbox", is_flag=True, help="Run the set-up with all your rights, whoever wrote it."
)
@repo_option
@output.json_option
def create(
    names: Sequence[str],
    base: str,
    branch: str,
    detached: bool,
    session: str | None,
    role: str,
    copy: tuple[str, ...],
    setup: str,
    no_sandbox: bool,
    repo: Path | None,
    as_json: bool,
) -> None:
    """Make worktrees, all of them or none.

    The set-up runs in a sandbox: it writes to the worktree, not to the repository's git
    directory, and sees an empty home directory. Not with `sandbox.enabled: false` in the role.
    """
    if branch and (len(names) > 1 or detached):
        raise click.UsageError("--branch goes with one NAME and without --detach")
    if session is not None and (branch or detached):
        raise click.UsageError("--session goes without --branch and --detach")
    site = open_site(repo)
    wanted = Spec("", branch, base, detached, copy=copy, setup=setup)
    loaded = load_role(role) if role else None
    if loaded:
        wanted = as_role_wants(wanted, loaded)
    if wanted.setup and not no_sandbox:
        wanted = dataclasses.replace(wanted, setup_sandbox=make_setup_sandbox(loaded))
    branches = dict.fromkeys(names, wanted.branch)
    if session is not None:
        roles = {name: role or name for name in names}
        branches = worktrees.swarm_branches(roles, session, site.branch_prefix)
        wanted = dataclasses.replace(wanted, detached=False)
    specs = [dataclasses.replace(wanted, name=name, branch=branches[name]) for name in names]
    try:
        made = worktrees.create_many(site, specs)
    except worktrees.WorktreeError as error:
        if error.code == worktrees.Code.BRANCH_EXISTS:
            error.hint += " · --from BRANCH begins at one that is there"
        raise
    worktrees.refill_in_background(site, wanted.base)
    if as_json:
        output.write_json(
            {
                "worktrees": [
                    {"name": spec.name, "path": made[spec.name], "branch": spec.birth_branch}
                    for spec in specs
                ]
            }
        )
        return
    for spec in specs:
        where = f"on branch {spec.birth_branch}" if spec.birth_branch else "detached"
        start = f" (from {spec.base})" if spec.base else ""
        output.write(f"{spec.name} · {show_path(made[spec.name])} {where}{start}")


@command.command()
@names_argument
@click.option("--force", is_flag=True, help="Also dirty or locked; what it drops is kept 30 days.")
@click.option("--keep-branch", is_flag=True, help="Leave the branch in any case.")
@dry_run_option
@repo_option
@output.json_option
def remove(
    names: Sequence[str],
    force: bool,
    keep_branch: bool,
    dry_run: bool,
    repo: Path | None,
    as_json: bool,
) -> None:
    """Remove worktrees.

    Their branches go too when nothing would be lost with them. Uncommitted work, commits
    on no branch and locked worktrees are refused without --force, those that an agent works in
    in any case.
    """
    remove_one = worktrees.plan_removal if dry_run else worktrees.remove
    results = []
    for name in names:
        site = open_site(repo, name)
        bring_over(site, name)
        refuse_used(site, name)
        result = remove_one(site, name, force=force, delete_branch=not keep_branch)
        results.append(result)
        if not as_json:
            write_removed(result, keep_branch, dry_run)
    if as_json:
        output.write_json({"removed": [dataclasses.asdict(result) for result in results]})


@command.command()
@click.argument("name", required=False)
@repo_option
@output.json_option
def restore(name: str | None, repo: Path | None, as_json: bool) -> None:
    """Bring back what a removal dropped.

    Without NAME, list what there is. Copies are kept for 30 days.
    """
    if name:
        site, name = open_kept_site(repo, name)
        path = worktrees.restore(site, name)
        if as_json:
            output.write_json({"name": name, "path": path})
        else:
            output.write(f"{name} is back · {show_path(path)}")
        return
    copies = worktrees.list_safety_copies(open_site(repo).repo)
    if as_json:
        output.write_json({"copies": [dataclasses.asdict(copy) for copy in copies]})
    elif copies:
        rows = [[copy.name, f"{worktrees.age_of(copy.kept_at)} ago", copy.ref] for copy in copies]
        output.write_table(["NAME", "KEPT", "REF"], rows, drop=("REF",), cut=("NAME",))
    else:
        output.write("nothing is kept")


@command.command()
@name_argument
@click.option("--reason", default="", help="Shown to whoever wants to remove it.")
@repo_option
@output.json_option
def lock(name: str, reason: str, repo: Path | None, as_json: bool) -> None:
    """Protect a worktree from removal."""
    worktrees.lock(open_site(repo, name), name, reason)
    _confirm(as_json, name, "locked")


@command.command()
@name_argument
@repo_option
@output.json_option
def unlock(name: str, repo: Path | None, as_json: bool) -> None:
    """Lift the protection."""
    worktrees.unlock(open_site(repo, name), name)
    _confirm(as_json, name, "unlocked")


def _confirm(as_json: bool, name: str, state: str) -> None:
    if as_json:
        output.write_json({"name": name, "state": state})
    else:
        output.write(f"{name} is {state}")


def _counts(stat: Stat) -> str:
    return f"{_number(stat.files, 'file')}, +{stat.insertions} -{stat.deletions}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


@command.command()
@name_argument
@repo_option
@output.json_option
def info(name: str, repo: Path | None, as_json: bool) -> None:
    """Show all that is known of a worktree."""
    site = open_site(repo, name)
    bring_over(site, name)
    worktree = worktrees.info(site, name)
    stat = worktrees.diff_stat(site, name)
    if as_json:
        output.write_json({**dataclasses.asdict(worktree), "diff": dataclasses.asdict(stat)})
        return
    behind = f"{worktree.behind} behind {worktree.base or 'its start'}"
    rows = {
        "path": short_path(worktree.path),
        "branch": worktree.branch or f"none ({output.printable(worktree.where) or 'detached'})",
        "head": worktree.head,
        "state": worktrees.state_of(worktree),
        "base": f"{worktree.ahead} ahead of, {behind}",
        "committed": f"{_counts(stat.committed)}, in {_number(stat.commits.count, 'commit')}",
        "uncommitted": f"{_counts(stat.uncommitted)}, and {stat.untracked} untracked",
        "ports": f"{worktree.ports[0]}-{worktree.ports[-1]}" if worktree.ports else "",
        "role": worktree.role,
        "parent": worktree.parent,
        "created": clock.to_text(worktree.created_at) if worktree.created_at else "",
    }
    output.write_table([], [[key, value] for key, value in rows.items() if value])
    for change in worktree.changes:
        output.write(f"  {output.printable(change)}")


@command.command()
@click.argument("names", nargs=-1, shell_complete=complete_names)
@repo_option
@output.json_option
def conflicts(names: Sequence[str], repo: Path | None, as_json: bool) -> None:
    """Say which worktrees would conflict when merged.

    One NAME is compared with its base and all others, two with each other (the second
    may be any ref), none: all with each other. Committed work only.
    """
    if names:  # the second may be a ref with a slash
        names = [worktree_named(names[0]), *names[1:]]
    site = open_site(repo, names[0] if names else "")
    bring_over(site)
    write_conflicts(worktrees.conflicts_of(site, _pairs(site, names)), as_json)


def _pairs(site: Site, names: Sequence[str]) -> list[tuple[str, str]]:
    match names:
        case (one, other):
            return [(one, other)]
        case (one,):
            base = worktrees.info(site, one).base
            others = [entry.name for entry in worktrees.list_managed(site) if entry.name != one]
            return [(one, other) for other in ([base] if base else []) + others]
        case ():
            return list(itertools.combinations([e.name for e in worktrees.list_managed(site)], 2))
        case _:
            raise click.UsageError("at most two names can be compared")


@command.command()
@click.option("--older-than", default="7d", show_default=True, help="Leave younger ones alone.")
@click.option(
    "--all", "everything", is_flag=True, help="Whatever their age; not those of running agents."
)
@click.option("--force", is_flag=True, help="With --all: also dirty, locked and unmerged ones.")
@click.option(
    "--session", metavar="ID", help="Those of this session alone, with their branches, of any age."
)
@dry_run_option
@repo_option
@output.json_option
def cleanup(
    older_than: str,
    everything: bool,
    force: bool,
    session: str | None,
    dry_run: bool,
    repo: Path | None,
    as_json: bool,
) -> None:
    """Remove old worktrees of ended agents.

    Clean and merged ones only; the others are named with the reason.
    Also finishes what crashes left behind and drops safety copies after 30 days. An agent that
    runs keeps its worktree, whatever is forced.
    """
    if force and not everything:
        raise click.UsageError("--force goes with --all")
    if everything and session is not None:
        raise click.UsageError("--session goes without --all")
    site = open_site(repo)
    bring_over(site)
    try:
        age = duration.parse(older_than)
    except ValueError as error:
        raise BullpenError(f"--older-than: {error}") from error
    cleaned = Cleaned()
    for each in worktrees.sites_in(site, bases_of_agents()):
        if session is not None:
            kept = partial(why_kept, each)
            done = worktrees.cleanup_session(each, session, kept, dry_run=dry_run)
        elif everything:
            used = partial(why_used, each)
            done = worktrees.full_cleanup(each, force=force, why_used=used, dry_run=dry_run)
        else:
            done = _clean_by_age(each, age, dry_run)
        cleaned.add(done)
    if as_json:
        output.write_json(dataclasses.asdict(cleaned))
    else:
        write_cleaned(cleaned, dry_run)


def _clean_by_age(site: Site, age: timedelta, dry_run: bool) -> Cleaned:
    home = current_home()
    cleaned = Cleaned() if dry_run else worktrees.gc(site)
    cleaned.add(
        worktrees.cleanup_orphaned(site, age, lambda name: has_ended(home, name), dry_run=dry_run)
    )
    cleaned.pruned += worktrees.prune(site, dry_run=dry_run)
    cleaned.add(worktrees.cleanup_branches(site, dry_run=dry_run))
    return cleaned

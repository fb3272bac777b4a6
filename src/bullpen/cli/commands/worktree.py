"""`bullpen worktree …`: thin over the library."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from bullpen import clock, worktrees
from bullpen.cli import output
from bullpen.cli.commands.role import complete_roles
from bullpen.cli.worktree_text import age_of, row, show_path, state_of, write_cleaned, write_removed
from bullpen.errors import BullpenError
from bullpen.model import duration
from bullpen.paths import Home, current_home, shown
from bullpen.worktrees import Cleaned, Info, Listed, Site, Spec


@click.group()
def command() -> None:
    """Make, look at, compare and remove worktrees.

    They belong to the repository of the current directory; --repo names another.
    """


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of worktrees for the shell; silent when there is no home or repository."""
    try:
        site = open_site(ctx.params.get("repo") or Path())
        return [
            entry.name
            for entry in worktrees.list_managed(site)
            if entry.name.startswith(incomplete)
        ]
    except BullpenError:
        return []


repo_option = click.option(
    "--repo",
    type=click.Path(path_type=Path),
    default=Path(),
    help="A directory in the repository (default: the current one).",
)
name_argument = click.argument("name", shell_complete=complete_names)
names_argument = click.argument("names", nargs=-1, required=True, shell_complete=complete_names)


def open_site(repo: Path) -> Site:
    """The site of that repository under this home's settings."""
    home = current_home()
    if sets_nothing(home.config_file):
        return worktrees.open_site(repo.expanduser(), home.worktrees)
    from bullpen.settings import load_settings

    rules = load_settings(home.config_file).worktrees
    return worktrees.open_site(
        repo.expanduser(),
        # A relative base is relative to the home.
        home.root / Path(rules.base).expanduser() if rules.base else home.worktrees,
        branch_prefix=rules.branch_prefix,
        pool=rules.pool,
        max_depth=rules.max_depth,
    )


def sets_nothing(config_file: Path) -> bool:
    """Whether the file holds comments only, as `init` writes it.

    Reading settings costs more than all the rest of a short command; without any, the
    library's defaults are the settings' defaults.
    """
    try:
        lines = config_file.read_bytes().splitlines()
    except FileNotFoundError:
        return True
    return all(not line.strip() or line.lstrip().startswith(b"#") for line in lines)


@command.command("list")
@repo_option
@output.json_option
def list_worktrees(repo: Path, as_json: bool) -> None:
    """List the worktrees of this repository."""
    site = open_site(repo)
    rows = _look_at_all(site)
    if as_json:
        output.write_json(
            [
                _plain(found)
                if isinstance(found, Info)
                else {"name": entry.name, "path": entry.path, "error": found}
                for entry, found in rows
            ]
        )
    elif rows:
        output.write_table(
            ["NAME", "BRANCH", "STATE", "AHEAD", "BEHIND", "AGE"],
            [row(entry.name, found) for entry, found in rows],
        )
    else:
        output.write("no worktrees · bullpen worktree create NAME makes one")


def _look_at_all(site: Site) -> list[tuple[Listed, Info | str]]:
    """Each worktree, or what is wrong with it: one broken entry must not hide the others."""
    from concurrent.futures import ThreadPoolExecutor

    def look(entry: Listed) -> tuple[Listed, Info | str]:
        try:
            return entry, worktrees.describe(site, entry)
        except worktrees.WorktreeError as error:
            return entry, error.message

    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(look, worktrees.list_managed(site)))


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--from", "base", default="", metavar="REF", help="Start from this ref.")
@click.option("--branch", default="", help="Name of the branch (one worktree only).")
@click.option("--detach", "detached", is_flag=True, help="No branch, a detached head.")
@click.option(
    "--role",
    default="",
    shell_complete=complete_roles,
    help="Begin, copy and set up as this role says.",
)
@click.option("--copy", multiple=True, metavar="GLOB", help="Untracked files to bring along.")
@click.option("--setup", default="", metavar="COMMAND", help="Run once when it is made.")
@repo_option
@output.json_option
def create(
    names: Sequence[str],
    base: str,
    branch: str,
    detached: bool,
    role: str,
    copy: tuple[str, ...],
    setup: str,
    repo: Path,
    as_json: bool,
) -> None:
    """Make worktrees, all of them or none."""
    if branch and (len(names) > 1 or detached):
        raise click.UsageError("--branch goes with one NAME and without --detach")
    site = open_site(repo)
    wanted = Spec("", branch, base, detached, copy=copy, setup=setup)
    if role:
        wanted = _as_role_wants(wanted, role)
    specs = [dataclasses.replace(wanted, name=name) for name in names]
    made = worktrees.create_many(site, specs)
    worktrees.refill_in_background(site, wanted.base)
    if as_json:
        output.write_json(
            [
                {"name": spec.name, "path": made[spec.name], "branch": spec.birth_branch}
                for spec in specs
            ]
        )
        return
    for spec in specs:
        where = f"on branch {spec.birth_branch}" if spec.birth_branch else "detached"
        start = f" (from {spec.base})" if spec.base else ""
        output.write(f"{spec.name} · {show_path(made[spec.name])} {where}{start}")


def _as_role_wants(spec: Spec, name: str) -> Spec:
    """The role's worktree settings, where the command line says nothing."""
    from bullpen import roles

    home = current_home()
    pod_roles = home.pod_roles if os.environ.get("BULLPEN_POD") else None
    rules = roles.load_role(roles.find_role(name, home.roles, pod_roles)).worktree
    return dataclasses.replace(
        spec,
        role=name,
        base=spec.base or rules.branch_from or "",
        detached=spec.detached or (rules.use_detached_head and not spec.branch),
        copy=spec.copy or rules.copy_globs,
        setup=spec.setup or rules.setup or "",
    )


@command.command()
@names_argument
@click.option("--force", is_flag=True, help="Also dirty or locked; what it drops is kept 30 days.")
@click.option("--keep-branch", is_flag=True, help="Leave the branch in any case.")
@repo_option
@output.json_option
def remove(names: Sequence[str], force: bool, keep_branch: bool, repo: Path, as_json: bool) -> None:
    """Remove worktrees.

    Their branches go too when nothing would be lost with them. Uncommitted work, commits
    on no branch and locked worktrees are refused without --force.
    """
    site = open_site(repo)
    results = []
    for name in names:
        result = worktrees.remove(site, name, force=force, delete_branch=not keep_branch)
        results.append(result)
        if not as_json:
            write_removed(result, keep_branch)
    if as_json:
        output.write_json([_plain(result) for result in results])


@command.command()
@click.argument("name", required=False)
@repo_option
@output.json_option
def restore(name: str | None, repo: Path, as_json: bool) -> None:
    """Bring back what a removal dropped.

    Without NAME, list what there is. Copies are kept for 30 days.
    """
    site = open_site(repo)
    if name:
        path = worktrees.restore(site, name)
        if as_json:
            output.write_json({"name": name, "path": path})
        else:
            output.write(f"{name} is back · {show_path(path)}")
        return
    copies = worktrees.list_kept(site.repo)
    if as_json:
        output.write_json([_plain(copy) for copy in copies])
    elif copies:
        rows = [[copy.name, f"{age_of(copy.kept_at)} ago", copy.ref] for copy in copies]
        output.write_table(["NAME", "KEPT", "REF"], rows)
    else:
        output.write("nothing is kept")


@command.command()
@name_argument
@click.option("--reason", default="", help="Shown to whoever wants to remove it.")
@repo_option
@output.json_option
def lock(name: str, reason: str, repo: Path, as_json: bool) -> None:
    """Protect a worktree from removal."""
    worktrees.lock(open_site(repo), name, reason)
    _confirm(as_json, name, "locked")


@command.command()
@name_argument
@repo_option
@output.json_option
def unlock(name: str, repo: Path, as_json: bool) -> None:
    """Lift the protection."""
    worktrees.unlock(open_site(repo), name)
    _confirm(as_json, name, "unlocked")


def _confirm(as_json: bool, name: str, state: str) -> None:
    if as_json:
        output.write_json({"name": name, "state": state})
    else:
        output.write(f"{name} is {state}")


@command.command()
@name_argument
@repo_option
@output.json_option
def info(name: str, repo: Path, as_json: bool) -> None:
    """Show all that is known of a worktree."""
    site = open_site(repo)
    found = worktrees.info(site, name)
    stat = worktrees.diff_stat(site, name)
    if as_json:
        output.write_json({**_plain(found), "diff": _plain(stat)})
        return
    rows = {
        "path": shown(found.path),
        "branch": found.branch or "none (detached)",
        "head": found.head,
        "state": state_of(found),
        "base": f"{found.ahead} ahead of, {found.behind} behind {found.base or 'its start'}",
        "changes": f"{stat.files} files, +{stat.insertions} -{stat.deletions}"
        f", {stat.untracked} untracked",
        "role": found.role,
        "parent": found.parent,
        "created": clock.to_text(found.created_at) if found.created_at else "",
    }
    output.write_table([], [[key, value] for key, value in rows.items() if value])
    for change in found.changes:
        output.write(f"  {output.printable(change)}")


@command.command()
@click.argument("names", nargs=-1, shell_complete=complete_names)
@repo_option
@output.json_option
def conflicts(names: Sequence[str], repo: Path, as_json: bool) -> None:
    """Say which worktrees would conflict when merged.

    One NAME is compared with its base and all others, two with each other (the second
    may be any ref), none: all with each other. Committed work only.
    """
    site = open_site(repo)
    found = [
        (one, other, worktrees.conflicts_with(site, one, other))
        for one, other in _pairs(site, names)
    ]
    if as_json:
        output.write_json(
            [{"a": one, "b": other, "files": result.files} for one, other, result in found]
        )
        return
    clashes = [(one, other, result) for one, other, result in found if result]
    for one, other, result in clashes:
        output.write(f"{output.colour('conflict', 'warn')}  {one} · {other}")
        for file in result.files:
            output.write(f"  {output.printable(file)}")
    if not clashes:
        output.write(f"no conflicts ({len(found)} compared)")


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
@click.option("--all", "everything", is_flag=True, help="Whatever their age and agent.")
@click.option("--force", is_flag=True, help="With --all: also dirty, locked and unmerged ones.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@repo_option
@output.json_option
def cleanup(
    older_than: str, everything: bool, force: bool, dry_run: bool, repo: Path, as_json: bool
) -> None:
    """Remove old worktrees of ended agents.

    Clean and merged ones only; the others are named with the reason.
    Also finishes what crashes left behind and drops safety copies after 30 days.
    """
    if (force and not everything) or (everything and dry_run):
        raise click.UsageError("--force goes with --all, and --all without --dry-run")
    site = open_site(repo)
    try:
        age = duration.parse(older_than)
    except ValueError as error:
        raise BullpenError(f"--older-than: {error}") from error
    if everything:
        cleaned = worktrees.full_cleanup(site, force=force)
    else:
        cleaned = _clean_byage_of(site, age, dry_run)
    if as_json:
        output.write_json(_plain(cleaned))
    else:
        write_cleaned(cleaned, dry_run)


def _clean_byage_of(site: Site, age: timedelta, dry_run: bool) -> Cleaned:
    home = current_home()
    rest = Cleaned() if dry_run else worktrees.gc(site)
    cleaned = worktrees.cleanup_orphaned(
        site, age, lambda name: has_ended(home, name), dry_run=dry_run
    )
    if dry_run:
        return cleaned
    pruned = worktrees.prune(site)
    branches = worktrees.cleanup_branches(site)
    return dataclasses.replace(
        cleaned,
        pruned=pruned,
        branches=branches.branches,
        recovered=rest.recovered,
        expired=rest.expired,
        left={**cleaned.left, **branches.left},
    )


def has_ended(home: Home, name: str) -> bool:
    """Whether no agent can be working there: it left an exit record, or there never was one."""
    session = home.session(name)
    return not session.exists() or (session / "exit.json").exists()


def _plain(value: Any) -> dict[str, Any]:
    """A result as JSON prints it."""
    return dataclasses.asdict(value)

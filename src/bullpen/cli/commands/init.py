"""`bullpen init`: make a home."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bullpen.cli import output
from bullpen.cli.commands.trust import around
from bullpen.errors import BullpenError, Kind
from bullpen.home import accepted, local_files, paths
from bullpen.home import create as homes


@click.command()
@click.argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@click.option("--global", "everywhere", is_flag=True, help="Make ~/.bullpen, found from anywhere.")
@click.option("--accept", is_flag=True, help="Use the home that is in DIR already.")
@output.json_option
def command(directory: str | None, everywhere: bool, accept: bool, as_json: bool) -> None:
    """Make a home for agents: ./.bullpen, or DIR itself.

    The home is a directory that only you can read (0700). Files that exist in it
    are kept. In a git repository it is added to .git/info/exclude.

    Commands find the nearest home above the current directory, if you made it or accepted it:
    agents can write such directories, too. One below another is a home of its own; it is said
    then which is used where. What you made and accepted is listed in
    ~/.config/bullpen/homes. A home that was moved or copied, or that an older version made, is
    accepted with --accept.
    """
    if everywhere and (directory is not None or accept):
        raise click.UsageError("give a directory or --global, not both")
    cwd, person = paths.current_directory(), paths.person_home()
    if not cwd.is_dir():
        raise BullpenError(f"the current directory is gone: {cwd}", hint="cd to one that exists")
    target = person / ".bullpen" if everywhere else cwd / ".bullpen"
    if directory is not None:
        target = paths.absolute(directory, cwd, person)
    if accept:
        _accept(target if directory is not None else cwd, person, as_json)
        return
    home = homes.create_home(target)
    above = _find_above(home, person)
    roles = [*home.roles.glob("*.yaml"), *home.roles.glob("*/role.yaml")]
    templates = list(home.pod_templates.glob("*.yaml"))
    if as_json:
        output.write_json(
            {
                "home": str(home.root),
                "id": home.id,
                "roles": len(roles),
                "templates": len(templates),
                "above": str(above) if above else None,
            }
        )
        return
    counts = f"{_count(roles, 'role')}, {_count(templates, 'pod template')}"
    output.write(f"Home ready: {output.printable(paths.short_path(home.root))}   ({counts})")
    for line in _which_is_used(home, above):
        output.write(output.printable(line))
    _offer_local_files(home)
    output.write("Next: bullpen doctor · bullpen role list · bullpen run --role coder")


def _find_above(home: paths.Home, person: Path) -> Path | None:
    """The home that commands found here before this one was made."""
    above = paths.home_above(_directory_of(home.root).parent)
    try:
        if above is not None:
            accepted.check(above, os.environ, person)
    except BullpenError:
        return None  # which commands refuse, here and there
    return above


def _directory_of(root: Path) -> Path:
    """The directory in which and below which a home is found."""
    return root.parent if root.name == ".bullpen" else root


def _which_is_used(home: paths.Home, above: Path | None) -> Iterator[str]:
    """What a person with several homes has to know."""
    here = paths.short_path(_directory_of(home.root))
    if above is not None:
        yield f"There is another home above: {paths.short_path(above)}"
        yield (
            f"Commands in {here} and below use the new one; elsewhere in"
            f" {paths.short_path(_directory_of(above))} that one, with its own agents"
        )
    named = os.environ.get("BULLPEN_DIR")
    if named and Path(named).resolve() != home.root:
        yield f"BULLPEN_DIR is set: in this shell commands use {named}, wherever you are"


def _offer_local_files(home: paths.Home) -> None:
    """Worktrees hold what git tracks; a `.env` is not among that."""
    names = local_files.find_local_files(around(home.root.parent))
    if not names:
        return
    shown = output.printable(", ".join(names))
    if sys.stdin.isatty() and sys.stdout.isatty():
        question = f"Copy {shown} into agents' worktrees? Programs there may need it"
        if click.confirm(question, err=True):
            local_files.copy_in_roles(home, names)
            output.write("Written into the roles (worktree.copy); agents may not read it")
            return
    output.write(f"Not in worktrees: {shown} · worktree.copy in the roles brings it there")


def _accept(directory: Path, person: Path, as_json: bool) -> None:
    home = paths.home_at(directory)
    if home is None:
        raise BullpenError(
            f"there is no home in {directory}", hint="bullpen init", kind=Kind.NOT_FOUND
        )
    root = home.resolve()
    is_new = accepted.accept(root, os.environ, person)
    if as_json:
        output.write_json({"home": str(root), "accepted": is_new})
        return
    shown = output.printable(paths.short_path(root))
    output.write(f"Accepted: {shown}" if is_new else f"{shown} was accepted before")


def _count(things: list[Path], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"

"""`bullpen init`: make a home."""

from pathlib import Path

import click

from bullpen import homes, paths
from bullpen.cli import output
from bullpen.errors import BullpenError


@click.command()
@click.argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@click.option("--global", "everywhere", is_flag=True, help="Make ~/.bullpen, found from anywhere.")
@output.json_option
def command(directory: str | None, everywhere: bool, as_json: bool) -> None:
    """Make a home for agents: ./.bullpen, or DIR itself.

    The home is a directory that only you can read (0700). Files that exist in it
    are kept. In a git repository it is added to .git/info/exclude.
    """
    if directory is not None and everywhere:
        raise click.UsageError("give a directory or --global, not both")
    cwd, person = paths.current_directory(), paths.person_home()
    if not cwd.is_dir():
        raise BullpenError(f"the current directory is gone: {cwd}", hint="cd to one that exists")
    target = person / ".bullpen" if everywhere else cwd / ".bullpen"
    if directory is not None:
        target = paths.absolute(directory, cwd, person)
    home = homes.create_home(target)
    roles = [*home.roles.glob("*.yaml"), *home.roles.glob("*/role.yaml")]
    templates = list(home.pod_templates.glob("*.yaml"))
    if as_json:
        output.write_json(
            {
                "home": str(home.root),
                "id": home.id,
                "roles": len(roles),
                "templates": len(templates),
            }
        )
        return
    counts = f"{_count(roles, 'role')}, {_count(templates, 'pod template')}"
    output.write(f"Home ready: {output.printable(paths.shown(home.root))}   ({counts})")
    output.write("Next: bullpen doctor · bullpen role list · bullpen run --role coder")


def _count(things: list[Path], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"

"""`bullpen trust`: let agents use the settings and hooks that a directory brings."""

from pathlib import Path

import click

from bullpen import trust
from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.paths import absolute, current_directory, current_home, person_home, shown


@click.command()
@click.argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@click.option("--list", "want_list", is_flag=True, help="List the trusted directories.")
@click.option("--remove", is_flag=True, help="Trust it no more.")
@click.option("--force", is_flag=True, help="Even your home directory, or one others write to.")
@output.json_option
def command(
    directory: str | None, want_list: bool, remove: bool, force: bool, as_json: bool
) -> None:
    """Let agents use the settings and hooks that a directory brings.

    DIR is the repository around you unless you name one; directories in it are
    included. What its .claude/settings.json and the hooks in it say is then run
    with your rights by agents that are started there: look at them first. Nothing
    is trusted by itself.
    """
    if want_list and (remove or force or directory is not None):
        raise click.UsageError("--list goes with nothing else")
    if want_list:
        _list(as_json)
        return
    cwd = current_directory()
    wanted = around(cwd) if directory is None else absolute(directory, cwd, person_home())
    if remove:
        _remove(wanted, as_json)
    else:
        _add(wanted.resolve(), force, as_json)


def around(cwd: Path) -> Path:
    """The top of the repository that holds the directory, else the directory itself."""
    return next((d for d in (cwd, *cwd.parents) if (d / ".git").exists()), cwd)


def _add(wanted: Path, force: bool, as_json: bool) -> None:
    if not wanted.is_dir():
        raise BullpenError(f"no such directory: {wanted}", kind=Kind.NOT_FOUND)
    if not force:
        trust.refuse_careless(wanted, person_home())
    home = current_home()
    before = trust.add(home, wanted)
    brings = trust.what_it_brings(wanted)
    if as_json:
        output.write_json(
            {
                "directory": str(wanted),
                "trusted": True,
                "before": _entry(before) if before else None,
                "brings": brings,
            }
        )
        return
    place = output.printable(shown(wanted))
    if before is not None and before.directory == wanted:
        output.write(f"{place} was trusted already, since {output.printable(before.since)}")
    else:
        output.write(f"{place} is trusted from now on{_covered(before)}")
    output.write(
        "agents started there may use its .claude/settings.json and the hooks in it:"
        " they run with your rights"
    )
    output.write(f"there now: {', '.join(brings) or 'none of them'}")
    output.write(f"take it back: bullpen trust --remove {place}")


def _covered(before: trust.Entry | None) -> str:
    if before is None:
        return "; it was not before"
    return f"; it was already, by {output.printable(shown(before.directory))}"


def _remove(wanted: Path, as_json: bool) -> None:
    home = current_home()
    gone = trust.remove(home, wanted)
    still = trust.find_entry(trust.list_entries(home), wanted)
    if as_json:
        output.write_json(
            {
                "directory": str(wanted),
                "trusted": still is not None,
                "before": _entry(gone) if gone else None,
                "by": str(still.directory) if still else None,
            }
        )
        return
    place = output.printable(shown(wanted))
    if gone is not None:
        output.write(f"{place} is no longer listed · agents that run keep what they began with")
    else:
        output.write(f"{place} was not listed")
    if still is not None:
        above = output.printable(shown(still.directory))
        output.write(f"still trusted, by {above} · bullpen trust --remove {above}")


def _list(as_json: bool) -> None:
    entries = trust.list_entries(current_home())
    if as_json:
        output.write_json([_entry(entry) for entry in entries])
    elif not entries:
        output.write("no directory is trusted · bullpen trust DIR")
    else:
        output.write_table(
            ["DIRECTORY", "SINCE"], [(shown(entry.directory), entry.since) for entry in entries]
        )


def _entry(entry: trust.Entry) -> dict[str, str]:
    return {"directory": str(entry.directory), "since": entry.since}

"""`bullpen trust`: let agents use the settings, hooks and servers that a directory brings."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.home import trust
from bullpen.home.paths import absolute, current_directory, current_home, person_home, short_path


@click.command()
@click.argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@click.option("--list", "want_list", is_flag=True, help="List the trusted directories.")
@click.option("--remove", is_flag=True, help="Trust it no more.")
@click.option("--force", is_flag=True, help="Even your home directory, or one others write to.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.json_option
def command(
    directory: str | None, want_list: bool, remove: bool, force: bool, yes: bool, as_json: bool
) -> None:
    """Let agents use the settings, hooks and servers that a directory brings.

    DIR is the repository around you unless you name one; then you are shown what it
    brings, and asked. Directories in it are included. What its .claude/settings.json,
    .mcp.json, .codex or .gemini say is then run with your rights by agents that are
    started there: look at them first. Its texts (CLAUDE.md, AGENTS.md, GEMINI.md)
    reach every agent, trusted or not.
    A directory that you told the agent program itself to trust is trusted here, too.
    """
    if want_list and (remove or force or yes or directory is not None):
        raise click.UsageError("--list goes with nothing else")
    if want_list:
        _list(as_json)
        return
    cwd = current_directory()
    wanted = around(cwd) if directory is None else absolute(directory, cwd, person_home())
    if remove:
        _remove(wanted, as_json)
    else:
        _add(wanted.resolve(), force, directory is None and not yes, as_json)


def around(cwd: Path) -> Path:
    """The top of the repository that holds the directory, else the directory itself. An empty
    `.git` makes none: Codex leaves one in /tmp when a command of it is killed."""
    return next((d for d in (cwd, *cwd.parents) if _is_top(d / ".git")), cwd)


def _is_top(git: Path) -> bool:
    return git.is_file() or os.path.lexists(git / "HEAD")


def _add(wanted: Path, force: bool, is_asked: bool, as_json: bool) -> None:
    if not wanted.is_dir():
        raise BullpenError(f"no such directory: {wanted}", kind=Kind.NOT_FOUND)
    if not force:
        trust.refuse_too_wide(wanted, person_home())
    home = current_home()
    brings = _find_code(wanted)
    if is_asked and trust.find_entry(trust.list_entries(home), wanted) is None:
        _ask(wanted, brings)
    before = trust.add(home, wanted)
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
    shown_path = output.printable(short_path(wanted))
    if before is not None and before.directory == wanted:
        output.write(f"{shown_path} was trusted already, since {output.printable(before.since)}")
    else:
        output.write(f"{shown_path} is trusted from now on{_covered(before)}")
    output.write(
        "agents started there may use its settings, hooks and servers: they run with your rights"
    )
    output.write(f"there now: {', '.join(brings) or 'none of them'}")
    output.write(f"take it back: bullpen trust --remove {shown_path}")


def _ask(wanted: Path, brings: Sequence[str]) -> None:
    """Nobody named it: a person decides, who has seen what it is about."""
    shown_path = output.printable(short_path(wanted))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BullpenError(
            f"{wanted} is around here; without a terminal it has to be named",
            hint=f"bullpen trust {shlex.quote(str(wanted))}, or --yes",
        )
    brought = output.printable(", ".join(brings)) or "no settings, hooks or servers now"
    click.echo(f"{shown_path} brings {brought}.", err=True)
    question = "Agents started there run what it brings, now and later, with your rights. Trust it?"
    if not click.confirm(question, err=True):
        click.echo(f"{shown_path} is not trusted", err=True)
        raise click.exceptions.Exit(1)


def _find_code(directory: Path) -> list[str]:
    """What trust is about, for every program that we know."""
    from bullpen.engines import ENGINES
    from bullpen.engines.repository import find_code

    names = [name for engine in ENGINES.values() for name in engine.code]
    return list(find_code(names, directory, directory))


def _covered(before: trust.TrustedDirectory | None) -> str:
    if before is None:
        return "; it was not before"
    return f"; it was already, by {output.printable(short_path(before.directory))}"


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
    directory = output.printable(short_path(wanted))
    if gone is not None:
        output.write(f"{directory} is no longer listed · agents that run keep what they began with")
    else:
        output.write(f"{directory} was not listed")
    if still is not None:
        above = output.printable(short_path(still.directory))
        output.write(f"still trusted, by {above} · bullpen trust --remove {above}")


def _list(as_json: bool) -> None:
    entries = trust.list_entries(current_home())
    if as_json:
        output.write_json({"directories": [_entry(entry) for entry in entries]})
    elif not entries:
        output.write("no directory is trusted · bullpen trust DIR")
    else:
        output.write_table(
            ["DIRECTORY", "SINCE"],
            [(short_path(entry.directory), entry.since) for entry in entries],
            drop=("SINCE",),
            cut=("DIRECTORY",),
        )


def _entry(entry: trust.TrustedDirectory) -> dict[str, str]:
    return {"directory": str(entry.directory), "since": entry.since}

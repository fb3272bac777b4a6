"""`bullpen version`: what runs here, and for which home."""

import os
import sys

import click

from bullpen import __version__
from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home, short_path


@click.command()
@output.json_option
def command(as_json: bool) -> None:
    """Print version, Python, platform and home."""
    home, problem = None, ""
    try:
        home = current_home().root
        line = short_path(home)
    except BullpenError as error:
        problem = error.message
        line = "none · bullpen init" if error.kind is Kind.NOT_FOUND else f"refused: {problem}"
    system = os.uname()
    facts = {
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": f"{system.sysname} {system.release} {system.machine}",
    }
    if as_json:
        output.write_json({**facts, "home": home, "problem": problem})
    else:
        output.write_table([], [*facts.items(), ("home", line)])

"""`bullpen record`: a session for asciinema."""

import json
import sys
from pathlib import Path

import click

from bullpen.cli.commands.logs import complete_known
from bullpen.cli.elsewhere import name_here
from bullpen.client.holder import connect
from bullpen.errors import BullpenError
from bullpen.home.paths import Home, current_home
from bullpen.terminal.cast import Header, cast, events
from bullpen.terminal.log_files import open_with_timing
from bullpen.terminal.sessions import find_session


@click.command()
@click.argument("name", shell_complete=complete_known)
def command(name: str) -> None:
    """Print an agent's terminal session as an asciinema recording.

    bullpen record NAME > x.cast; asciinema play x.cast, or drop it on a web page.
    """
    name = name_here(name)
    home = current_home()
    session = find_session(home, name)
    with open_with_timing(session) as pairs:
        pieces = (piece for log, timing in pairs for piece in events(log.read, timing))
        for line in cast(_header(home, name, session), pieces):
            sys.stdout.write(line)


def _header(home: Home, name: str, session: Path) -> Header:
    try:
        with connect(home, name) as connection:
            fields = connection.greeting
    except BullpenError:  # it has ended, or does not answer: the size is anybody's guess
        fields = _json(session / "exit.json")
    rows, cols, started = (fields.get(key) for key in ("rows", "cols", "started"))
    return Header(
        rows=rows if isinstance(rows, int) else 24,
        cols=cols if isinstance(cols, int) else 80,
        started=started if isinstance(started, int | float) else None,
        title=name,
    )


def _json(path: Path) -> dict[str, object]:
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}

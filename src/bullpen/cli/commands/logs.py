"""`bullpen logs`: what an agent's program wrote."""

import sys
from collections.abc import Iterator

import click

from bullpen.client.holder import connect
from bullpen.errors import BullpenError, Kind
from bullpen.paths import Home, current_home
from bullpen.terminal.follow import wait_for_output
from bullpen.terminal.log_files import LogFiles
from bullpen.terminal.plain import Plain
from bullpen.terminal.sessions import find_session, known


def complete_known(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of all agents for the shell; silent when there is no home."""
    try:
        return [name for name in known(current_home()) if name.startswith(incomplete)]
    except BullpenError:
        return []


@click.command()
@click.argument("name", shell_complete=complete_known)
@click.option("-f", "--follow", is_flag=True, help="Go on until the agent's program ends.")
@click.option("--raw", is_flag=True, help="Bytes as they are, with all control sequences.")
def command(name: str, follow: bool, raw: bool) -> None:
    """Print what an agent's program wrote to its terminal.

    As readable text; of programs that draw the whole screen this gives only pieces.
    """
    home = current_home()
    plain = Plain()
    with LogFiles(find_session(home, name)) as log:
        for _ in _times(home, name, follow):
            for piece in log.read_on():
                sys.stdout.buffer.write(piece if raw else plain.feed(piece).encode())
            sys.stdout.buffer.flush()
    if not raw:
        sys.stdout.buffer.write(plain.finish().encode())
        sys.stdout.buffer.flush()


def _times(home: Home, name: str, follow: bool) -> Iterator[None]:
    """When to look: once, or each time that there is more."""
    if not follow:
        yield
        return
    try:
        connection = connect(home, name)
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        yield  # it has ended
        return
    with connection:
        yield from wait_for_output(connection)

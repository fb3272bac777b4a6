"""`bullpen hook`: the same as the hot command, where that one was in doubt.

Settings of a running agent may have been written by another version, and some engines
take exit code 2 for "block this call": so even words that it does not know are no error.
"""

import os

import click

from bullpen.cli import output
from bullpen.errors import BullpenError
from bullpen.home.paths import HUB, current_home
from bullpen.hot import fast, find_hub, hook


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--agent NAME]",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def command(words: tuple[str, ...]) -> None:
    """Hand an engine's hook event (standard input) to the hub; its answer is printed.

    NAME is the agent, by default BULLPEN_ACTOR. Always ends with exit code 0; while the hub
    is away, events are kept for it.
    """
    environ = dict(os.environb)
    agent = fast.hooked_agent(list(words), environ)
    if agent is None:
        output.write_error(f"not understood: {' '.join(words)}", "bullpen hook --help")
        agent = ""
    try:
        socket: bytes | None = os.fsencode(current_home().socket(HUB))
    except (BullpenError, OSError):
        socket = find_hub.find_agent_socket(environ)  # in a sandbox the home is not to be seen
    try:
        hook.write(1, hook.pass_on(socket, agent, environ))
    except OSError:
        return  # the engine left

"""`bullpen permission-request`: the same as the generated line, where that one was in doubt.

As `hook`, it has no errors: some engines take an exit code for an answer.
"""

import os

import click

from bullpen.cli import output
from bullpen.errors import BullpenError
from bullpen.home.paths import HUB, current_home
from bullpen.hot import fast, hook, permission


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--agent NAME]",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def command(words: tuple[str, ...]) -> None:
    """Ask whether a tool may run: an engine's request on standard input, the decision as its
    hooks print it on standard output.

    NAME is the agent, by default BULLPEN_ACTOR. Waits up to 24 hours, also for a hub that is
    away. Prints nothing when there is no decision; always ends with exit code 0.
    """
    environ = dict(os.environb)
    agent = fast.hooked_agent(list(words), environ)
    if agent is None:
        output.write_error(f"not understood: {' '.join(words)}", "bullpen permission-request -h")
        agent = ""
    sockets = permission.find_sockets(environ)
    try:
        known = os.fsencode(current_home().socket(HUB))
    except (BullpenError, OSError):
        known = b""
    if known and known not in sockets:
        sockets.append(known)
    try:
        hook.write(1, permission.ask(sockets, agent, environ))
    except OSError:
        return  # the engine left

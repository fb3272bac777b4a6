"""`bullpen reset`: a usable terminal after a client that was killed with -9."""

import os

import click

from bullpen.errors import BullpenError
from bullpen.terminal.sane import make_sane
from bullpen.terminal.undo import EVERYTHING


@click.command()
def command() -> None:
    """Put this terminal back in order.

    For when an attached client was killed and keys, mouse or colours are wrong. Nothing on
    the screen is erased.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        raise BullpenError("reset needs a terminal") from error
    try:
        make_sane(terminal)
        # Leaving a screen may have moved the cursor: go where nothing is written over.
        os.write(terminal, EVERYTHING + b"\x1b[999;1H\r\n")
    finally:
        os.close(terminal)

"""Programs that are attached to, and what is said when they are left."""

import pytest
from _pytest.mark import ParameterSet

from tests.holder.programs import python, shell

# Turns everything on that a terminal has, says READY, then says in hexadecimal what it is given.
EVERYTHING_ON = (
    b"\\x1b[?1049h\\x1b[?1000h\\x1b[?1002h\\x1b[?1003h\\x1b[?1005h\\x1b[?1006h\\x1b[?1015h"
    b"\\x1b[?1004h\\x1b[?2004h\\x1b[?2031h\\x1b[?2026h\\x1b[?1h\\x1b=\\x1b[?25l\\x1b[2;9r"
    b"\\x1b[>5u\\x1b[>4;2m\\x1b[31;44m\\x1b[6 q\\x1b]0;mine\\x07"
).decode()
LOUD = python(
    f"""
import os, tty
tty.setraw(0)
os.write(1, b"{EVERYTHING_ON}READY")
while piece := os.read(0, 65536):
    os.write(1, piece.hex().encode())
"""
)
DETACHED = b"[detached from amy \xc2\xb7 bullpen attach amy]"
FLOOD = shell(
    r"""
    stty -echo; printf '\033[?1000h'; read go; head -c 20000000 /dev/zero | tr '\0' x
    printf '\033[?1000l'; head -c 20000000 /dev/zero | tr '\0' x; echo; echo THE-END; read go
    """
)


def slow(value: object) -> ParameterSet:
    """One of several cases that is left out of the fast set."""
    return pytest.param(value, marks=pytest.mark.slow)

"""Somebody is named, and not what it is told. Called by `task` and `send`."""

import shlex
from collections.abc import Sequence

from bullpen.errors import BullpenError


def missing_text(what: str, to: str, command: Sequence[str]) -> BullpenError:
    """`to` in words, and the command as far as it was typed."""
    return BullpenError(f"no {what} for {to}", hint=f'{shlex.join(command)} "{what.upper()}"')

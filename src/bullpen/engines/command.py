"""Any program at all: held, not understood.

It has no prompt and no conversation to resume. What it does is unknown unless it says so
itself with `bullpen hook`.
"""

from collections.abc import Mapping
from typing import Any

from bullpen.engines.base import Engine, Start, observe_hook
from bullpen.errors import BullpenError, Kind
from bullpen.model.state import Told


class Command:
    """See the module."""

    name = "command"
    missing = "it reports no state"

    def argv(self, start: Start) -> tuple[str, ...]:
        if start.role is None:
            return start.words
        if start.prompt and start.role.deliver != "lines":
            raise BullpenError(
                f"role {start.role.name} runs a plain program, which takes no prompt",
                hint=f"deliver: lines in the role {start.role.name} has it typed as a line",
                kind=Kind.UNSUPPORTED,
            )
        return (*start.role.command, *start.words)

    def first_input(self, start: Start) -> bytes:
        return " ".join(start.prompt.split()).encode() + b"\n" if start.prompt else b""

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        return observe_hook(hook, at)


COMMAND: Engine = Command()

"""Any program at all: held, not understood.

It has no prompt and no conversation to resume. What it does is unknown unless it says so
itself with `bullpen hook`.
"""

from collections.abc import Mapping
from typing import Any

from bullpen.engines.base import Engine, NoConversation, Prepared, Start, observe_hook
from bullpen.errors import BullpenError, Kind
from bullpen.model.state import Told


class Command(NoConversation):
    """See the module."""

    name = "command"
    missing = "it reports no state"
    lacks: tuple[str, ...] = ("prompts", "conversations", "permissions")

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:
            return Prepared(start.words)
        if start.prompt and start.role.deliver != "lines":
            raise BullpenError(
                f"role {start.role.name} runs a plain program, which takes no prompt",
                hint=f"deliver: lines in the role {start.role.name} has it typed as a line",
                kind=Kind.UNSUPPORTED,
            )
        line = " ".join(start.prompt.split()).encode() + b"\n" if start.prompt else b""
        return Prepared((*start.role.command, *start.words), first_input=line)

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        return observe_hook(hook, at)


COMMAND: Engine = Command()

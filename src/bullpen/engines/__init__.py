"""The agent programs Bullpen knows: one module each, and this table."""

from bullpen.engines.base import Engine, Start
from bullpen.engines.command import COMMAND
from bullpen.errors import BullpenError, Kind

ENGINES: dict[str, Engine] = {"command": COMMAND}

__all__ = ["ENGINES", "Engine", "Start", "get_engine"]


def get_engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise BullpenError(
            f"this version cannot start agents of type {name}",
            hint=f"agent_type: {', '.join(ENGINES)}",
            kind=Kind.UNSUPPORTED,
        )
    return ENGINES[name]

"""The agent programs Bullpen knows: one module or package each, and this table.

Owns flags, hooks and files of these programs. Called by the hub, by `doctor` and `auth`. Must
not start a program, ask the hub, or know another engine.
"""

from collections.abc import Sequence
from pathlib import Path

from bullpen.engines.base import Engine, Prepared, Start, StateFile
from bullpen.engines.claude import CLAUDE
from bullpen.engines.codex import CODEX
from bullpen.engines.command import COMMAND
from bullpen.engines.gemini import GEMINI
from bullpen.errors import BullpenError, Kind

ENGINES: dict[str, Engine] = {
    "claude": CLAUDE,
    "gemini": GEMINI,
    "codex": CODEX,
    "command": COMMAND,
}

__all__ = ["ENGINES", "Engine", "Prepared", "Start", "StateFile", "engine_of", "get_engine"]


def get_engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise BullpenError(
            f"this version cannot start agents of type {name}",
            hint=f"agent_type: {', '.join(ENGINES)}",
            kind=Kind.UNSUPPORTED,
        )
    return ENGINES[name]


def engine_of(words: Sequence[str]) -> Engine:
    """The engine that knows a program which is held as it is."""
    return ENGINES.get(Path(words[0]).name if words else "", COMMAND)

"""What a check says."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """What was found; `fix` is the command or step that helps, `lacks` what it cannot do."""

    status: Literal["ok", "warn", "fail"]
    name: str
    text: str
    fix: str = ""
    lacks: tuple[str, ...] = ()

"""The installed command, and how it ended."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BULLPEN = Path(sys.executable).with_name("bullpen")


@dataclass(frozen=True)
class Ran:
    """A finished command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

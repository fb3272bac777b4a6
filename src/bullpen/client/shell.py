"""What the hub must know of the shell that asks: directory, environment, umask, size.

Sent with every start of an agent: a long-lived hub's own environment is stale, and an agent
starts in the person's. Called by commands and by programs of users.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from bullpen.home.paths import current_directory


@dataclass(frozen=True)
class Shell:
    """Where an agent starts: the fields of the model's `Caller`."""

    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    umask: int = 0o022
    rows: int = 24
    cols: int = 80

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def this_shell() -> Shell:
    """That of this process."""
    mask = os.umask(0o077)
    os.umask(mask)
    size = shutil.get_terminal_size((80, 24))
    return Shell(
        cwd=str(current_directory()),
        env={name: value for name, value in os.environ.items() if _is_text(name + value)},
        umask=mask,
        rows=size.lines,
        cols=size.columns,
    )


def _is_text(text: str) -> bool:
    """Whether JSON can carry it: a variable in another encoding stays behind."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

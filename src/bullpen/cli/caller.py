"""What the hub must know of the shell that asks: directory, environment, umask, size, pod.

A long-lived hub's own environment is stale; an agent starts in the person's.
"""

import os
import shutil
from typing import Any

from bullpen.paths import current_directory


def caller() -> dict[str, Any]:
    """The fields that every start carries."""
    mask = os.umask(0o077)
    os.umask(mask)
    size = shutil.get_terminal_size((80, 24))
    return {
        "cwd": str(current_directory()),
        "env": {name: value for name, value in os.environ.items() if _is_text(name + value)},
        "umask": mask,
        "rows": size.lines,
        "cols": size.columns,
    }


def pod_in_effect(given: str | None) -> str | None:
    """`--pod`, else the pod that this command runs in."""
    return given or os.environ.get("BULLPEN_POD") or None


def _is_text(text: str) -> bool:
    """Whether JSON can carry it: a variable in another encoding stays behind."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

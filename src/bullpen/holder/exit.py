"""The exit record: how the program ended, on disk before the holder leaves."""

import contextlib
import json
import os
import time

from bullpen.holder import VERSION

LAST_CHARACTERS = 2000
LAST_BYTES = 4 * LAST_CHARACTERS


def exit_record(status: int, started: float, last: bytes) -> dict[str, object]:
    """`status` is what waitpid gave, `last` the end of the output."""
    return {
        "version": VERSION,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "started": started,
        "ended": time.time(),
        "last_output": last.decode("utf-8", "replace")[-LAST_CHARACTERS:],
    }


def write_exit(session: str, record: dict[str, object]) -> None:
    """By rename, so that whoever finds it finds it whole. A full disk cannot be helped."""
    path = os.path.join(session, "exit.json")  # noqa: PTH118
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)  # noqa: PTH105

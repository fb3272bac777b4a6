"""One hub per home: the lock of the home's directory.

Called by `hub/main` before anything else is touched. Writes nothing: the kernel frees the lock when
the process ends. `hub/listen` says where the hub listens, `home/hub_file` what it tells others.
"""

import fcntl
import os
import time

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home

LOCK_SECONDS = 0.2
LOOK_AGAIN_SECONDS = 0.005


class AlreadyServedError(Exception):
    """Another hub has this home."""


def take_lock(home: Home) -> int:
    """The lock of the home, held until this process ends; never inherited.

    On the directory itself: a file for it could be deleted, and then be locked twice.
    """
    descriptor = os.open(home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            # Somebody who only looks whether it is free has it for a moment, too.
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise AlreadyServedError from error
        time.sleep(LOOK_AGAIN_SECONDS)


def refuse_read_only(home: Home) -> None:
    """Before any part of the hub fails in its own words."""
    if not os.access(home.root, os.W_OK):
        raise BullpenError(
            f"{home.root} is read-only", hint="agents that run go on", kind=Kind.UNAVAILABLE
        )

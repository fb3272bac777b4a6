"""A home after its machine went down: no process of it lives, its files are of another boot.

rebooted(pen)
pen.start()
"""

import contextlib
import json
import os
import signal

from tests.hub.pen import Pen
from tests.processes import alive
from tests.waiting import wait_until

EARLIER = "11111111-2222-3333-4444-555555555555"


def rebooted(pen: Pen, *, is_flushed: bool = True) -> None:
    """Kill everything at once. Without `is_flushed` the holders' own records, which nobody flushes
    to the disk, have not come there."""
    gone = pen.processes()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # and so nobody sees that another has gone
        for pid in gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    wait_until(lambda: not any(map(alive, gone)))
    hub_file = pen.root / "hub.json"
    hub_file.write_text(json.dumps({**json.loads(hub_file.read_text()), "boot_id": EARLIER}))
    for path in (pen.root / "sessions").rglob("holder.json"):
        if not is_flushed:
            path.unlink()
            continue
        record = json.loads(path.read_text())
        for field in ("start_time", "child_start_time"):
            record[field] = f"{EARLIER}/{record[field].partition('/')[2]}"
        path.write_text(json.dumps(record))

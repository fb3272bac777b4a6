"""The time zone of this machine, for entries that name none."""

import os
from pathlib import Path

from bullpen.directors.scheduler.cron import is_zone

LOCALTIME = Path("/etc/localtime")


def local_zone() -> str:
    """Its name; UTC if nothing says it."""
    link = str(LOCALTIME.resolve()) if LOCALTIME.is_symlink() else ""
    names = (os.environ.get("TZ", "").removeprefix(":"), link.partition("zoneinfo/")[2])
    return next(filter(is_zone, names), "UTC")

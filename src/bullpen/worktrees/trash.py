"""Deletes big trees: renames them aside and returns; a background process deletes.

An entry's name says from when it may be deleted: `<epoch>.<key>`. Most may be deleted at once;
what no safety copy can hold (repositories inside a worktree) stays for 30 days. The next `empty`
finishes what a crash left.
"""

import os
import re
import subprocess
from datetime import datetime
from pathlib import Path

from bullpen import clock, proc
from bullpen.worktrees.site import Site

# Detached from us, so that it goes on when the command that started it has ended.
# Some tools leave read-only directories (Go's module cache), which rm cannot empty.
_DELETE = (
    'for tree in "$@"; do rm -rf -- "$tree" || { chmod -R u+rwX -- "$tree"; rm -rf -- "$tree"; };'
    " done >/dev/null 2>&1"
)


def entry_for(site: Site, key: str, keep_until: datetime | None = None) -> Path:
    """Where a tree goes when it is thrown away."""
    return site.trash / f"{int(keep_until.timestamp()) if keep_until else 0}.{key}"


def throw(path: Path, entry: Path) -> None:
    """Move the tree aside; atomic, and quick whatever its size."""
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.rename(entry)


def empty(site: Site, now: datetime | None = None, *, wait: bool = False) -> int:
    """Start deleting everything whose time has come; returns how many trees."""
    moment = (now or clock.now()).timestamp()
    try:
        entries = sorted(site.trash.iterdir())
    except FileNotFoundError:
        return 0
    due = [entry for entry in entries if _due(entry) <= moment]
    if due:
        subprocess.run(
            [proc.get_program("sh"), "-c", _DELETE if wait else f"{_DELETE} &", "sh", *due],
            env=proc.with_absolute_path(os.environ),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
            timeout=1800 if wait else 60,
        )
    return len(due)


def find_saved(site: Site, name: str) -> Path | None:
    """The submodules of the worktree of that name that was removed last, if they are kept."""
    pattern = re.compile(rf"\d+\.{re.escape(name)}\.[0-9a-f]{{8}}\.modules")
    entries = site.trash.iterdir() if site.trash.is_dir() else ()
    return max((each for each in entries if pattern.fullmatch(each.name)), key=_due, default=None)


def _due(entry: Path) -> float:
    digits = entry.name.partition(".")[0]
    return float(digits) if digits.isdigit() else 0.0

"""How the list of worktrees looks: text for people, fields for programs. Pure.

Called by the command and by the hub, which answers it with the same.
"""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bullpen import clock
from bullpen.table import lay_out
from bullpen.text import printable
from bullpen.worktrees.listing import Info, Listed

COLUMNS = ("NAME", "BRANCH", "STATE", "AHEAD", "BEHIND", "AGE")
DROPPED = ("AGE", "BEHIND", "BRANCH", "AHEAD")  # on a narrow terminal, the first of them first
CUT = ("NAME", "BRANCH", "STATE")

Rows = Sequence[tuple[Listed, Info | str]]


def list_text(rows: Rows, *, colour: bool = False, columns: int = 0) -> str:
    """A line each; 0 columns is no limit. A broken worktree says what is wrong with it."""
    if not rows:
        return "no worktrees · bullpen worktree create NAME makes one\n"
    cells = [[printable(cell) for cell in _cells(entry.name, info)] for entry, info in rows]
    lines = lay_out(COLUMNS, [COLUMNS, *cells], columns, drop=DROPPED, cut=CUT)
    if colour:
        lines[0] = f"\x1b[2m{lines[0]}\x1b[0m"
    return "".join(f"{line}\n" for line in lines)


def list_fields(rows: Rows) -> list[dict[str, Any]]:
    """What programs are told of each, as JSON has it: all that is known, or what is wrong."""
    return [
        _fields(info)
        if isinstance(info, Info)
        else {"name": entry.name, "path": str(entry.path), "error": info}
        for entry, info in rows
    ]


def _fields(info: Info) -> dict[str, Any]:
    created_at = clock.to_text(info.created_at) if info.created_at else None
    return {**dataclasses.asdict(info), "path": str(info.path), "created_at": created_at}


def state_of(info: Info) -> str:
    """`clean, unmerged`, `dirty (2 files), locked: agent at work`."""
    if info.dirty:
        count = len(info.changes)
        text = f"dirty ({count} file{'s' * (count != 1)})"
    else:
        text = "clean, unmerged" if info.ahead else "clean"
    if info.locked is not None:
        text += f", locked: {info.locked}" if info.locked else ", locked"
    return text


def age_of(moment: datetime | None) -> str:
    """`2h`, `3d`; nothing when it is not known."""
    if moment is None:
        return ""
    seconds = max(int((clock.now() - moment).total_seconds()), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _cells(name: str, info: Info | str) -> list[str]:
    if isinstance(info, str):
        return [name, "", f"broken: {info}", "", "", ""]
    branch = info.branch or f"({info.head[:10]})"
    age = age_of(info.created_at)
    return [name, branch, state_of(info), str(info.ahead), str(info.behind), age]

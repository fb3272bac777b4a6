"""Fetches from a private git: every id is computed anew, every link between objects checked.

Called by `bring_over` and `bring_modules`. What does not verify is refused, and keeps nothing else
back. The sending half runs in the sandbox of the store; only the pack crosses.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.worktrees.branches import is_valid_branch
from bullpen.worktrees.git import Repository, git
from bullpen.worktrees.private.store import Inside, parse_refs

MOST_REFS = 1000  # that it made or changed
FETCH = (
    *("-c", "transfer.fsckObjects=true", "-c", "protocol.file.allow=always"),
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
    *("--no-recurse-submodules", "--no-show-forced-updates", "--atomic", "--stdin"),
)


def fetch_all(
    repo: Repository,
    inside: Inside,
    source: Path,
    wanted: Mapping[str, str],
    *,
    prefix: str,
    seconds: float,
) -> dict[str, str]:
    """Bring these, of the git directory `source` inside, to their pins, all of which begin with
    `prefix`; why not, by pin, for those that were refused."""
    deadline = time.monotonic() + seconds
    there = list_pins(repo, prefix)
    new = {pin: oid for pin, oid in wanted.items() if there.get(pin) != oid}
    refused = {pin: "no name for a ref" for pin in new if not is_valid_branch(pin)}
    new = {pin: oid for pin, oid in new.items() if pin not in refused}
    if len(new) > MOST_REFS:
        refused |= dict.fromkeys(list(new)[MOST_REFS:], f"more than {MOST_REFS} refs changed")
        new = dict(list(new.items())[:MOST_REFS])
    _make_room(repo, prefix, there, new)
    if new and _fetch(repo, inside, source, new, seconds):
        # One that does not verify keeps none of the others back.
        for pin, oid in new.items():
            left = deadline - time.monotonic()
            one = {pin: oid}
            why = _fetch(repo, inside, source, one, left) if left > 0 else "it takes too long"
            if why:
                refused[pin] = why
    return refused | _missing(repo, prefix, new, refused)


def _missing(
    repo: Repository, prefix: str, new: Mapping[str, str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Git says that all went well and takes nothing over, if a history has no beginning."""
    there = list_pins(repo, prefix) if new else {}
    why = "git did not take it: is its history shallow? (git fetch --unshallow)"
    return {pin: why for pin, oid in new.items() if pin not in refused and there.get(pin) != oid}


def list_pins(repo: Repository, prefix: str) -> dict[str, str]:
    """Ids by full name."""
    words = ("for-each-ref", "--format=%(objectname) %(refname)", prefix)
    return parse_refs(git(repo, *words).text)


def _fetch(
    repo: Repository, inside: Inside, source: Path, pins: Mapping[str, str], seconds: float
) -> str:
    """Why it failed; empty when git says that these are there now, verified."""
    lines = "".join(f"+{oid}:{pin}\n" for pin, oid in pins.items())
    words = (*FETCH, f"--upload-pack={inside.upload_pack(source)}", str(source))
    try:
        git(repo, *words, stdin=os.fsencode(lines), timeout=seconds)
    except BullpenError as error:
        why = " ".join(error.message.split())[-300:]
        return f"{why} (too large, or damaged)" if "hung up" in why else why
    return ""


def _make_room(
    repo: Repository, prefix: str, there: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """A pin `a` stands in the way of `a/b`, and the other way round; what it kept is still kept,
    under another name."""
    lines = []
    for pin, oid in there.items():
        if any(other.startswith(f"{pin}/") or pin.startswith(f"{other}/") for other in new):
            aside = f"{prefix}old/{oid}"
            lines += [f"update {aside} {oid}\n", f"delete {pin} {oid}\n"]
    if lines:
        git(repo, "update-ref", "--stdin", stdin=os.fsencode("".join(lines)))

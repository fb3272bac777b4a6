"""Intents: files written before the first change of a creation, a removal or a fast-forward.

The next caller undoes or finishes what a killed process left half-done. One file per operation in
the common git directory. Its owner holds an flock on it, and so do the owner's children: an intent
that nobody locks is abandoned. `recover` acts on intents; this module only reads and writes them.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bullpen import proc
from bullpen.files import flush_directory, make_directory, write_atomically
from bullpen.worktrees import repo_lock
from bullpen.worktrees.git import Repository
from bullpen.worktrees.repo_lock import Lock

ORPHAN_SECONDS = 20.0


@dataclass(frozen=True)
class NewWorktree:
    """One worktree of a set that is being made."""

    id: str  # administrative directory, and directory under .making
    name: str  # empty for a pool entry
    path: str  # where it will lie
    branch: str  # to be created with it; empty: none is
    commit: str
    previous_record: str = ""  # JSON to put back when an older life's record is replaced


@dataclass(frozen=True)
class Making:
    """A set of worktrees is being made: all or none."""

    base: str
    members: tuple[NewWorktree, ...]


@dataclass(frozen=True)
class Removing:
    """A worktree is being removed. Moving its directory aside is the point of no return."""

    base: str
    name: str
    path: str
    aside: str
    admin: str  # empty: git knows nothing of it
    branch: str  # to be deleted if it is still at `tip`; empty: none
    tip: str


@dataclass(frozen=True)
class FastForwarding:
    """A branch is moved on, and the files of the checkout that is on it. The move of the branch,
    after the files, is the point of no return."""

    path: str
    admin: str  # its git directory
    ref: str
    old: str
    new: str


Intent = Making | Removing | FastForwarding


@dataclass(frozen=True)
class IntentFile:
    """An intent as it stands in the journal; `fd` holds its flock."""

    key: str
    file: Path
    fd: int


@contextmanager
def announced(repo: Repository, intent: Intent, _lock: Lock) -> Iterator[IntentFile]:
    """Put the intent on disk. It stays until `withdraw`, whatever happens here."""
    key = secrets.token_hex(6)
    directory = repo.own_dir / "journal"
    make_directory(directory)
    body = {
        "kind": type(intent).__name__.lower(),
        "owner": [os.getpid(), proc.start_time(os.getpid())],
        **asdict(intent),
    }
    file = directory / f"{key}.json"
    write_atomically(file, json.dumps(body), mode=0o600)
    descriptor = os.open(file, os.O_RDWR)
    try:
        # Readers come under the repository's lock too, so nobody saw it unheld.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield IntentFile(key, file, descriptor)
    finally:
        os.close(descriptor)


def withdraw(entry: IntentFile) -> None:
    """Done: from here on the next caller has nothing to undo."""
    with contextlib.suppress(FileNotFoundError):
        entry.file.unlink()
    flush_directory(entry.file.parent)


def list_pending(repo: Repository) -> list[Intent]:
    """What others are doing right now, or have left behind."""
    return [intent for file in _files(repo) if (intent := _read(file)[0]) is not None]


@contextmanager
def abandoned(repo: Repository, _lock: Lock) -> Iterator[list[tuple[IntentFile, Intent]]]:
    """The intents whose owner is gone, each held so that nobody else takes it up."""
    intents: list[tuple[IntentFile, Intent]] = []
    for unfinished in (repo.own_dir / "journal").glob(".*.new"):
        unfinished.unlink()  # its writer died; a living one would hold the lock
    with contextlib.ExitStack() as stack:
        for file in _files(repo):
            try:
                descriptor = os.open(file, os.O_RDWR)
            except FileNotFoundError:
                continue
            stack.callback(os.close, descriptor)
            intent, owner_gone = _read(file)
            # A dead owner's git may still be writing; it ends by itself.
            if (
                repo_lock.take(descriptor, ORPHAN_SECONDS if owner_gone else 0)
                and intent is not None
            ):
                intents.append((IntentFile(file.stem, file, descriptor), intent))
        yield intents


def _files(repo: Repository) -> list[Path]:
    return sorted((repo.own_dir / "journal").glob("*.json"))


def _read(file: Path) -> tuple[Intent | None, bool]:
    try:
        body = json.loads(file.read_text())
    except FileNotFoundError:
        return None, True
    kind, (pid, start) = body.pop("kind"), body.pop("owner")
    owner_gone = start is not None and proc.start_time(pid) != start
    if kind == "making":
        members = tuple(NewWorktree(**member) for member in body["members"])
        return Making(base=body["base"], members=members), owner_gone
    if kind == "fastforwarding":
        return FastForwarding(**body), owner_gone
    return Removing(**body), owner_gone

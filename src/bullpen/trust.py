"""Which directories may bring settings and hooks of their own to an agent.

Kept in the home as a list of resolved paths; nothing is trusted unless it or a directory above it
is listed. A list that cannot be believed (damaged, or open to others) trusts nothing: `is_trusted`
says no, the functions for the command say why.
"""

import contextlib
import fcntl
import json
import os
import shlex
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen import clock
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.paths import Home

FILE = "trusted.json"
LOCK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.005
# What a repository may bring for the programs we know.
BROUGHT = (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".gemini/settings.json",
    ".codex/config.toml",
)


@dataclass(frozen=True)
class Entry:
    """A trusted directory, and since when."""

    directory: Path
    since: str


def is_trusted(home: Home, directory: Path) -> bool:
    """Whether an agent that is started there may use what that directory brings."""
    try:
        return find_entry(list_entries(home), directory) is not None
    except BullpenError:
        return False


def find_entry(entries: list[Entry], directory: Path) -> Entry | None:
    """The entry that covers the directory: its own, else the nearest above it."""
    try:
        resolved = directory.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None
    listed = {entry.directory: entry for entry in entries}
    return next((listed[d] for d in (resolved, *resolved.parents) if d in listed), None)


def list_entries(home: Home) -> list[Entry]:
    """All entries, by path; raises if the list cannot be believed."""
    path = home.root / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unbelievable(path, f"cannot be read: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _unbelievable(path, "is not a file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_uid != os.geteuid():
            raise _unbelievable(path, f"belongs to another user ({found.st_uid})")
        if found.st_mode & 0o077:
            raise BullpenError(
                f"{path} is open to others ({stat.S_IMODE(found.st_mode):04o}): nothing is trusted",
                hint=f"look at what it lists, then: chmod 600 {shlex.quote(str(path))}",
                kind=Kind.DENIED,
            )
        text = file.read()
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        raise _unbelievable(path, f"is damaged ({error})") from error


def add(home: Home, directory: Path) -> Entry | None:
    """Trust it; what covered it before, if anything did."""
    resolved = directory.resolve()
    with _locked(home):
        entries = list_entries(home)
        before = find_entry(entries, resolved)
        if before is None or before.directory != resolved:
            _write(home, [*entries, Entry(resolved, clock.to_text(clock.now()))])
    return before


def remove(home: Home, directory: Path) -> Entry | None:
    """Trust it no more; its entry, or None if it had none of its own."""
    # Also by the name in the list, should that be a link by now.
    places = {directory.resolve(), directory.absolute()}
    with _locked(home):
        entries = list_entries(home)
        gone = next((entry for entry in entries if entry.directory in places), None)
        if gone is not None:
            _write(home, [entry for entry in entries if entry is not gone])
    return gone


def refuse_careless(directory: Path, person: Path) -> None:
    """Raise for a directory whose trust would reach further than anybody means."""
    if person.resolve().is_relative_to(directory):
        what = "is your home directory" if directory == person.resolve() else "holds your home"
        raise BullpenError(
            f"{directory} {what}: whatever you ever clone below it would be trusted",
            hint="name one repository · or --force",
            kind=Kind.DENIED,
        )
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
        raise BullpenError(
            f"{directory} can be written by other users: what they put there would run as you",
            hint=f"chmod o-w {shlex.quote(str(directory))} · or --force",
            kind=Kind.DENIED,
        )


def what_it_brings(directory: Path) -> list[str]:
    """The files in it that trust is about, of those we know."""
    return [name for name in BROUGHT if os.path.lexists(directory / name)]


def _parse(text: bytes) -> list[Entry]:
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("trusted"), dict):
        raise ValueError("no list of directories in it")
    entries = []
    for name, since in data["trusted"].items():
        if not name.startswith("/") or ".." in Path(name).parts or not isinstance(since, str):
            raise ValueError(f"{name!r} is no absolute path with a time")
        entries.append(Entry(Path(name), since))
    return entries


def _write(home: Home, entries: list[Entry]) -> None:
    listed = {str(e.directory): e.since for e in sorted(entries, key=lambda e: e.directory)}
    write_atomically(home.root / FILE, json.dumps({"trusted": listed}, indent=1) + "\n", 0o600)


def _unbelievable(path: Path, why: str) -> BullpenError:
    return BullpenError(
        f"{path} {why}: nothing is trusted",
        hint=f"move it away, then bullpen trust DIR again: mv {shlex.quote(str(path))} /tmp",
        kind=Kind.DENIED,
    )


@contextlib.contextmanager
def _locked(home: Home) -> Iterator[None]:
    """On a directory that nobody else locks: the home's own is the hub's for its whole life."""
    home.credentials.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(home.credentials, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"another process has held {home.credentials} for {LOCK_SECONDS:g} s",
                    hint=f"see who: fuser {shlex.quote(str(home.credentials))}",
                    kind=Kind.UNAVAILABLE,
                )
            time.sleep(LOOK_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

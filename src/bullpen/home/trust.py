"""Which directories may bring settings and hooks of their own to an agent.

Stored in the home as a list of resolved paths. A directory is trusted if it or one above it is
listed; those about which the person said no are listed, too, and not asked about again. A list that
is damaged or open to others trusts nothing: `is_trusted` says no, the functions for the command say
why.
"""

import contextlib
import json
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bullpen import clock
from bullpen.errors import BullpenError, Kind
from bullpen.files import locked, write_atomically
from bullpen.home.paths import Home

FILE = "trusted.json"


@dataclass(frozen=True)
class TrustedDirectory:
    """A trusted directory, and since when."""

    directory: Path
    since: str


@dataclass(frozen=True)
class _Lists:
    """What the file holds."""

    trusted: list[TrustedDirectory] = field(default_factory=list)
    declined: list[TrustedDirectory] = field(default_factory=list)


def is_trusted(home: Home, directory: Path) -> bool:
    """Whether an agent that is started there may use what that directory brings."""
    try:
        return find_entry(list_entries(home), directory) is not None
    except BullpenError:
        return False


def find_entry(entries: list[TrustedDirectory], directory: Path) -> TrustedDirectory | None:
    """The entry that covers the directory: its own, else the nearest above it."""
    try:
        resolved = directory.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None
    listed = {entry.directory: entry for entry in entries}
    return next((listed[d] for d in (resolved, *resolved.parents) if d in listed), None)


def list_entries(home: Home) -> list[TrustedDirectory]:
    """All trusted directories, by path; raises if the list cannot be believed."""
    return _read(home).trusted


def is_declined(home: Home, directory: Path) -> bool:
    """Whether the person was asked about that directory, and said no."""
    return find_entry(_read(home).declined, directory) is not None


def _read(home: Home) -> _Lists:
    path = home.root / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Lists()
    except OSError as error:
        raise _invalid_list(path, f"cannot be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _invalid_list(path, "is not a file")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_uid != os.geteuid():
            raise _invalid_list(path, f"belongs to another user ({status.st_uid})")
        if status.st_mode & 0o077:
            raise BullpenError(
                f"{path} is open to others ({stat.S_IMODE(status.st_mode):04o}):"
                " nothing is trusted",
                hint=f"look at what it lists, then: chmod 600 {shlex.quote(str(path))}",
                kind=Kind.DENIED,
            )
        text = file.read()
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        raise _invalid_list(path, f"is damaged ({error})") from error


def add(home: Home, directory: Path) -> TrustedDirectory | None:
    """Trust it; what covered it before, if anything did."""
    resolved = directory.resolve()
    with _locked(home):
        lists = _read(home)
        before = find_entry(lists.trusted, resolved)
        if before is None or before.directory != resolved:
            declined = [entry for entry in lists.declined if entry.directory != resolved]
            _write(home, _Lists([*lists.trusted, _now(resolved)], declined))
    return before


def decline(home: Home, directory: Path) -> None:
    """Note that the person said no."""
    with _locked(home):
        lists = _read(home)
        _write(home, _Lists(lists.trusted, [*lists.declined, _now(directory.resolve())]))


def remove(home: Home, directory: Path) -> TrustedDirectory | None:
    """Trust it no more; its entry, or None if it had none of its own."""
    # Also by the name in the list, should that be a link by now.
    names = {directory.resolve(), directory.absolute()}
    with _locked(home):
        lists = _read(home)
        gone = next((entry for entry in lists.trusted if entry.directory in names), None)
        if gone is not None:
            kept = [entry for entry in lists.trusted if entry is not gone]
            _write(home, _Lists(kept, lists.declined))
    return gone


def refuse_too_wide(directory: Path, person: Path) -> None:
    """Refuse a directory whose trust would cover far more than intended."""
    if person.resolve().is_relative_to(directory):
        what = "is your home directory" if directory == person.resolve() else "holds your home"
        raise BullpenError(
            f"{directory} {what}: whatever you ever clone below it would be trusted",
            hint="name one repository · or --force",
            kind=Kind.DENIED,
        )
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise BullpenError(
            f"{directory} can be written by other users: what they put there would run as you",
            hint=f"chmod o-w {shlex.quote(str(directory))} · or --force",
            kind=Kind.DENIED,
        )


def _parse(text: bytes) -> _Lists:
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("trusted"), dict):
        raise ValueError("no list of directories in it")
    declined = data.get("declined", {})
    if not isinstance(declined, dict):
        raise ValueError("declined is no list of directories")
    return _Lists(_entries(data["trusted"]), _entries(declined))


def _entries(listed: dict[str, object]) -> list[TrustedDirectory]:
    entries = []
    for name, since in listed.items():
        if not name.startswith("/") or ".." in Path(name).parts or not isinstance(since, str):
            raise ValueError(f"{name!r} is no absolute path with a time")
        entries.append(TrustedDirectory(Path(name), since))
    return entries


def _write(home: Home, lists: _Lists) -> None:
    data = {"trusted": _to_json(lists.trusted)}
    if lists.declined:
        data["declined"] = _to_json(lists.declined)
    text = json.dumps(data, indent=1)
    write_atomically(home.root / FILE, text + "\n", 0o600)


def _to_json(entries: list[TrustedDirectory]) -> dict[str, str]:
    return {str(e.directory): e.since for e in sorted(entries, key=lambda e: e.directory)}


def _now(directory: Path) -> TrustedDirectory:
    return TrustedDirectory(directory, clock.to_text(clock.now()))


def _invalid_list(path: Path, why: str) -> BullpenError:
    return BullpenError(
        f"{path} {why}: nothing is trusted",
        hint=f"move it away, then bullpen trust DIR again: mv {shlex.quote(str(path))} /tmp",
        kind=Kind.DENIED,
    )


@contextlib.contextmanager
def _locked(home: Home) -> Iterator[None]:
    """Hold the lock on `credentials/`, which nothing else locks; the lock on the home itself is
    the hub's."""
    home.credentials.mkdir(mode=0o700, exist_ok=True)
    with locked(home.credentials):
        yield

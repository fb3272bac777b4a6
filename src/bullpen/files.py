"""Writes small files so that a crash leaves the old or the new one, and one writer at a time; opens
files of agents safely.

Every command loads this module, so nothing heavy is imported.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind

PIECE_BYTES = 1 << 20
LOCK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.005
MOST_LINKS = 40  # as in the kernel
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)  # to look at it, not into it; Linux only


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """Write beside, flush to disk, rename over; the directory entry is flushed too. With that
    mode exactly; without one, as the umask says."""
    new = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        created = 0o644 if mode is None else 0o600
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, created)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say whose
        raise
    flush_directory(path.parent)


def create_once(path: Path, content: bytes) -> bool:
    """A whole file or none, and never over an existing one: False if there is one.

    A hard link of a finished file is the only call that is both: `rename` replaces,
    and O_EXCL shows a file that is still empty.
    """
    new = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(new)
    except FileExistsError:
        return False
    finally:
        new.unlink(missing_ok=True)
    flush_directory(path.parent)
    return True


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """One that survives a power cut as what is flushed in it does; one that is there stays."""
    try:
        directory.mkdir(mode)
    except FileExistsError:
        if not directory.is_dir():
            raise
    else:
        flush_directory(directory.parent)


def flush_directory(directory: Path) -> None:
    """Make a rename or an unlink in it survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_beneath(root: Path, path: Path, flags: int) -> int:
    """Open what lies below a directory, and follow no link on the way: an agent may swap any part
    of it while we look. With PATH_ONLY the last part may be a link, and is opened as such."""
    *above, name = path.relative_to(root).parts
    into = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(root, PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            outer, descriptor = descriptor, os.open(part, into, dir_fd=descriptor)
            os.close(outer)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def links_on(path: Path) -> Iterator[Path]:
    """Every link that the kernel would follow on the way to a path, by its real name."""
    at, names = Path("/"), list(reversed(path.absolute().parts[1:]))
    count = 0
    while names and count < MOST_LINKS:
        name = names.pop()
        here = at.parent if name == ".." else at / name
        try:
            is_link = here.is_symlink()
        except OSError:
            return  # nobody gets any further, nor does a mount
        if not is_link:
            at = here
            continue
        yield here
        count += 1
        target = here.readlink()
        at = Path("/") if target.is_absolute() else at
        names += [part for part in reversed(target.parts) if part != "/"]


def find_planted(path: Path, roots: Collection[Path]) -> Path | None:
    """The first link on the way to it that lies below one of the roots, which are real paths."""
    for link in links_on(path):
        if any(link != root and link.is_relative_to(root) for root in roots):
            return link
    return None


def read_plain(path: Path, most: int, *, may_link: bool = False) -> bytes:
    """The first bytes of a file, where an agent may have put anything: a pipe would keep us waiting
    for ever, and a link to a device would never end. Such a thing is an OSError. Links are followed
    only in files that people link to theirs."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if may_link else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    # Before `fdopen`, which leaves the descriptor of a directory open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        content = bytearray()
        while len(content) < most and (piece := file.read(min(most - len(content), PIECE_BYTES))):
            content += piece
    return bytes(content)


def read_tail(path: Path, most: int) -> bytes:
    """The last bytes of a file, however long it is."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read(most)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of ours; empty if there is none that can be read."""
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock on that directory, for who reads a file in it and writes it anew."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise BullpenError(
                    f"another process has held {directory} for {LOCK_SECONDS:g} s",
                    hint=f"see who: fuser {directory}",
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

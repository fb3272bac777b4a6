"""Writing small files so that a crash leaves the old one or the new one, never half; and reading
those that an agent may have put something else in place of.

Every command passes through here, so nothing heavy is imported.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

PIECE_BYTES = 1 << 20


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write beside, flush to disk, rename over; the directory entry is flushed too."""
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say whose
        raise
    flush_directory(path.parent)


def create_once(path: Path, content: bytes) -> bool:
    """A whole file or none, and never over an existing one: False if there is one.

    A hard link of a finished file is the only call that is both: `rename` replaces,
    and O_EXCL shows a file that is still empty.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(beside)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
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


def read_plain(path: Path, most: int) -> bytes:
    """The first bytes of a file, where an agent may have put anything: a pipe would keep us waiting
    for ever, and a link to a device would never end. Such a thing is an OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    # Before `fdopen`, which leaves the descriptor of a directory open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = bytearray()
        while len(found) < most and (piece := file.read(min(most - len(found), PIECE_BYTES))):
            found += piece
    return bytes(found)

"""Writing small files so that a crash leaves the old one or the new one, never half.

Every command passes through here, so nothing heavy is imported.
"""

import contextlib
import os
from pathlib import Path


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


def flush_directory(directory: Path) -> None:
    """Make a rename or an unlink in it survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

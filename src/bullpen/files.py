"""Writing small files so that a crash leaves the old one or the new one, never half."""

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write beside, flush to disk, rename over; the directory entry is flushed too."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise
    flush_directory(path.parent)


def flush_directory(directory: Path) -> None:
    """Make a rename or an unlink in it survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
